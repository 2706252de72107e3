// Package certs keeps the certificates that listproxy shows and the CAs by which it knows its
// clients: made or read from files, renewed in time, read again when they change. [ChainVerifier]
// is where a client's certificate is verified.
package certs
