"""The actions of a policy transaction, with their conditions. Never awaits.

The law of this file: no action overwrites a change that its writer has not seen.
"""

from penstock.store.dynamodb.items.access import Action
from penstock.store.dynamodb.items.images import Attributes, number
from penstock.store.dynamodb.items.keys import PK, Primary, primary_of
from penstock.store.dynamodb.policy.records import CHILD_COUNT, Record


def put(item: Record, seen: Attributes | None, *same: str) -> Action:
    """Write an item, if the attributes `same` are as seen.

    If `seen` is None, write the item only if it does not exist yet.
    """
    return "Put", {"Item": item, **_while_seen(seen, same)}


def delete(seen: Attributes, *same: str) -> Action:
    return "Delete", {"Key": primary_of(seen).attributes, **_while_seen(seen, same)}


def erase(key: Primary) -> Action:
    """Delete an item without a condition, because its owner is deleted."""
    return "Delete", {"Key": key.attributes}


def count_child(seen: Attributes, difference: int, *same: str) -> Action:
    """Add to an entity's count of children. With a difference of 0, only check the entity."""
    parameters = {"Key": primary_of(seen).attributes, **_while_seen(seen, same)}
    if not difference:
        return "ConditionCheck", parameters
    parameters["ExpressionAttributeNames"] |= {"#count": CHILD_COUNT}
    parameters["ExpressionAttributeValues"] |= {":more": number(difference)}
    return "Update", {**parameters, "UpdateExpression": "ADD #count :more"}


def _while_seen(seen: Attributes | None, same: tuple[str, ...]) -> Record:
    if seen is None:
        absent = {"ExpressionAttributeNames": {"#n0": PK}}
        return {"ConditionExpression": "attribute_not_exists(#n0)", **absent}
    conditions = [
        f"#n{i} = :v{i}" if name in seen else f"attribute_not_exists(#n{i})"
        for i, name in enumerate(same)
    ]
    return {
        "ConditionExpression": " AND ".join(conditions),
        "ExpressionAttributeNames": {f"#n{i}": name for i, name in enumerate(same)},
        "ExpressionAttributeValues": {
            f":v{i}": seen[name] for i, name in enumerate(same) if name in seen
        },
    }
