// Package certs has the certificate that listproxy shows and the CAs of its clients' certificates, read
// again when their files change.
package certs
