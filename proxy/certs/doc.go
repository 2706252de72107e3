// Package certs has the certificates that listproxy shows and the CAs with which it verifies its
// clients, read again when their files change. [ChainVerifier] is where a client's certificate is
// verified.
package certs
