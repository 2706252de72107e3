// Package certs has the certificates that listproxy shows and the CAs with which it verifies its
// clients. They are made here or read from files, renewed before they end, and read again when the
// files change. [ChainVerifier] is where a client's certificate is verified.
package certs
