"""The store on DynamoDB, for when one machine is not enough."""

from penstock.store.dynamodb.store import open_dynamodb

__all__ = ["open_dynamodb"]
