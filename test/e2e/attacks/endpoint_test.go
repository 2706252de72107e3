package attacks

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"strings"
	"time"
)

// The two protocols, as ALPN names them.
const (
	http1 = "http/1.1"
	http2 = "h2"
)

// cheapCurves leave out the most expensive key exchange, since there are thousands of handshakes.
var cheapCurves = []tls.CurveID{tls.X25519}

// An endpoint is the address of a server, kube-apiserver or listproxy, and what its certificate is verified with.
type endpoint struct {
	address string
	roots   *x509.CertPool
}

// newEndpoint returns the endpoint of the server at url, whose certificate ca signed.
func newEndpoint(url string, ca []byte) endpoint {
	e := endpoint{address: strings.TrimPrefix(url, "https://"), roots: x509.NewCertPool()}
	e.roots.AppendCertsFromPEM(ca)
	return e
}

// dial opens a connection that speaks a protocol. A certificate that is not nil is shown.
func (e endpoint) dial(ctx context.Context, protocol string, certificate *tls.Certificate) (*tls.Conn, error) {
	config := &tls.Config{RootCAs: e.roots, NextProtos: []string{protocol}, MinVersion: tls.VersionTLS12, CurvePreferences: cheapCurves}
	if certificate != nil {
		// Shown even if the server asks for certificates of other CAs.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return certificate, nil }
	}
	conn, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", e.address)
	if err != nil {
		return nil, err
	}
	secured := conn.(*tls.Conn)
	_ = secured.SetDeadline(time.Now().Add(patience))
	if got := secured.ConnectionState().NegotiatedProtocol; got != protocol {
		_ = secured.Close()
		return nil, fmt.Errorf("the connection speaks %q, not %s", got, protocol)
	}
	return secured, nil
}
