package server

import (
	"crypto/tls"
	"crypto/x509"
)

// The application protocols that listeners offer (ALPN).
const (
	protoHTTP2 = "h2"
	protoHTTP1 = "http/1.1"
)

// TLS are the TLS settings that all listeners share. The zero value is ready to use.
type TLS struct {
	// MinVersion is the lowest version, as crypto/tls numbers them; 1.2 if it is 0.
	MinVersion uint16
	// CipherSuites are those of TLS 1.2; crypto/tls chooses if there are none.
	CipherSuites []uint16
	// ClientCAs returns the CAs that the server names when it asks clients for a certificate. It is
	// called for every connection, concurrently. If the function is nil, or returns nil, clients
	// are not asked. A client may answer without a certificate, and **no certificate is verified
	// here**: the authenticator verifies it at every request, so that a connection does not outlive
	// its CA.
	ClientCAs func() *x509.CertPool
}

// getCertificate is the type of the field of that name of [tls.Config].
type getCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)

// Config returns the settings of the main port and of the tunnels: HTTP/2 preferred.
func (s TLS) Config(get getCertificate) *tls.Config {
	config := s.base(get, protoHTTP2, protoHTTP1)
	if s.ClientCAs == nil {
		return config
	}
	asking := config.Clone()
	asking.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		pool := s.ClientCAs()
		if pool == nil {
			return nil, nil
		}
		// A clone uses the original's keys of session tickets, so sessions resume.
		c := config.Clone()
		c.ClientAuth, c.ClientCAs = tls.RequestClientCert, pool
		return c, nil
	}
	return asking
}

// ConnectConfig returns the settings of the port for CONNECT. It offers HTTP/1.1 only, since Go's
// clients write CONNECT as HTTP/1.1 even after they have agreed on HTTP/2. It asks for no client
// certificate, since callers authenticate inside the tunnel.
func (s TLS) ConnectConfig(get getCertificate) *tls.Config { return s.base(get, protoHTTP1) }

func (s TLS) base(get getCertificate, protos ...string) *tls.Config {
	return &tls.Config{
		GetCertificate: get,
		MinVersion:     max(s.MinVersion, tls.VersionTLS12),
		CipherSuites:   s.CipherSuites,
		NextProtos:     protos,
		// Small records at the beginning of a connection would let a browser show the beginning of a
		// page sooner. Clients of an API wait for the whole, and each record is a system call.
		DynamicRecordSizingDisabled: true,
	}
}
