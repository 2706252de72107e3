package server

import (
	"crypto/tls"
	"crypto/x509"
)

// The application protocols that a way in offers (ALPN), in order of preference.
const (
	protoHTTP2 = "h2"
	protoHTTP1 = "http/1.1"
)

// TLS are the TLS settings that the doors share. The zero value is right.
type TLS struct {
	// MinVersion is the lowest version, as crypto/tls numbers them; 1.2 if it is 0.
	MinVersion uint16
	// CipherSuites are those of TLS 1.2, crypto/tls's own choice if there are none.
	CipherSuites []uint16
	// ClientCAs returns the CAs whose certificates clients are asked for, and which they are
	// told; it is called for every connection, by many at the same time. Clients are not asked if
	// the function is nil, or returns nil. A certificate is asked for and not demanded, and **not
	// verified here**: that is for whoever makes an identity of it, at every request, so that a
	// connection does not outlive its CA.
	ClientCAs func() *x509.CertPool
}

// GetCertificate is tls.Config's.
type GetCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)

// Config returns the settings of the main door and of the tunnels: HTTP/2 preferred.
func (s TLS) Config(get GetCertificate) *tls.Config {
	config := s.base(get, protoHTTP2, protoHTTP1)
	if s.ClientCAs == nil {
		return config
	}
	asking := config.Clone()
	asking.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		pool := s.ClientCAs()
		if pool == nil {
			return nil, nil //nolint:nilnil // crypto/tls's word for the settings as they are
		}
		// A clone: sessions are resumed across them, with the tickets of the first.
		c := config.Clone()
		c.ClientAuth, c.ClientCAs = tls.RequestClientCert, pool
		return c, nil
	}
	return asking
}

// ConnectConfig returns the settings of the port for CONNECT, where there is nothing but HTTP/1.1
// and nobody is asked who they are: Go's clients write CONNECT as HTTP/1.1 even after they have
// agreed on HTTP/2, and a caller is who the requests inside the tunnel say.
func (s TLS) ConnectConfig(get GetCertificate) *tls.Config { return s.base(get, protoHTTP1) }

func (s TLS) base(get GetCertificate, protos ...string) *tls.Config {
	return &tls.Config{
		GetCertificate: get,
		MinVersion:     max(s.MinVersion, tls.VersionTLS12),
		CipherSuites:   s.CipherSuites,
		NextProtos:     protos,
	}
}

// TLSConfig returns the TLS settings for clients with a pair that does not change: TLS 1.2
// at least, HTTP/2 preferred.
func TLSConfig(pair tls.Certificate) *tls.Config {
	return TLS{}.Config(func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &pair, nil })
}
