"""TLS as gRPC's C library wants it: credentials that ask for new files before each handshake."""

import grpc

from penstock.transport.tls import FollowedTls, Tls, TlsFiles

FollowedCredentials = FollowedTls[grpc.ServerCertificateConfiguration]


def follow_credentials(tls: Tls) -> FollowedCredentials:
    """ConfigError if the files can't be used now."""
    return FollowedTls(tls, _configuration)


def server_credentials(tls: Tls, followed: FollowedCredentials) -> grpc.ServerCredentials:
    """For one server. gRPC asks from several threads, one at a time."""
    return grpc.dynamic_ssl_server_credentials(
        followed.last_good,
        followed.fetch,  # type: ignore[arg-type]  # None is fine: nothing new
        require_client_authentication=tls.client_ca is not None,
    )


def _configuration(files: TlsFiles) -> grpc.ServerCertificateConfiguration:
    ca = files.client_ca
    return grpc.ssl_server_certificate_configuration(
        [(files.key.data, files.cert.data)], root_certificates=ca.data if ca else None
    )
