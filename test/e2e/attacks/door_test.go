package attacks

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// The two protocols, as ALPN names them.
const (
	http1 = "http/1.1"
	http2 = "h2"
)

// cheapCurves leave out the key exchange that costs most: there are thousands of handshakes here.
var cheapCurves = []tls.CurveID{tls.X25519}

// A door is a way to open a connection to whoever answers requests.
type door struct {
	name string
	// dial opens a connection that speaks one protocol, and shows a certificate if there is one.
	dial func(ctx context.Context, protocol string, certificate *tls.Certificate) (*tls.Conn, error)
	// tunnel: the connection is for one host, and so must be all that is asked on it.
	tunnel bool
}

// newDoor goes straight to a server: the API server, or listproxy.
func newDoor(name, url string, ca []byte) door {
	address := strings.TrimPrefix(url, "https://")
	return door{name: name, dial: func(ctx context.Context, protocol string, certificate *tls.Certificate) (*tls.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err != nil {
			return nil, err
		}
		return startTLS(ctx, conn, address, ca, protocol, certificate)
	}}
}

// newTunnel goes to target by CONNECT to an HTTP proxy that speaks TLS; ca is the authority of the
// proxy, and of what is found inside. Who shows a certificate shows it at both, and it must not matter
// at the former.
func newTunnel(name string, proxy *url.URL, target string, ca []byte) door {
	outside := newDoor("proxy", proxy.String(), ca)
	return door{name: name, tunnel: true, dial: func(ctx context.Context, protocol string, certificate *tls.Certificate) (*tls.Conn, error) {
		conn, err := outside.dial(ctx, http1, certificate)
		if err != nil {
			return nil, err
		}
		if err := connect(conn, target); err != nil {
			_ = conn.Close()
			return nil, err
		}
		return startTLS(ctx, conn, target, ca, protocol, certificate)
	}}
}

// connect asks for a tunnel. The proxy speaks no further before the client does, so nothing of the
// tunnel can be lost in the reader.
func connect(conn net.Conn, target string) error {
	_ = conn.SetDeadline(time.Now().Add(patience))
	if _, err := fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %[1]s\r\n\r\n", target); err != nil {
		return err
	}
	reader := bufio.NewReader(conn)
	res, err := http.ReadResponse(reader, &http.Request{Method: http.MethodConnect})
	switch {
	case err != nil:
		return fmt.Errorf("CONNECT %s: %w", target, err)
	case res.StatusCode != http.StatusOK:
		_ = res.Body.Close()
		return fmt.Errorf("CONNECT %s: %s", target, res.Status)
	case reader.Buffered() > 0:
		return fmt.Errorf("CONNECT %s: the proxy spoke first", target)
	}
	return nil
}

// startTLS makes conn a TLS connection to address that speaks protocol. It owns conn.
func startTLS(ctx context.Context, conn net.Conn, address string, ca []byte, protocol string, certificate *tls.Certificate) (*tls.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	config := &tls.Config{RootCAs: roots, ServerName: host, NextProtos: []string{protocol}, MinVersion: tls.VersionTLS12, CurvePreferences: cheapCurves}
	if certificate != nil {
		// Whatever the server would like to see.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return certificate, nil }
	}
	secured := tls.Client(conn, config)
	_ = secured.SetDeadline(time.Now().Add(patience))
	if err := secured.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, err
	}
	if got := secured.ConnectionState().NegotiatedProtocol; got != protocol {
		_ = secured.Close()
		return nil, fmt.Errorf("the connection speaks %q, not %s", got, protocol)
	}
	return secured, nil
}
