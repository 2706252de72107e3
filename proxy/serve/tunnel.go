package serve

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/elazarl/goproxy"
)

// Tunnels is a [net.Listener] whose connections are tunnels. A client opens a tunnel to the API server by a CONNECT request to
// the server of [NewConnectServer]. The [http.Server] of the main port serves the tunnels, so requests inside a tunnel are
// handled like all others. Inside a tunnel, the client believes that it talks to the API server, so the certificate of the main
// port must have the API server's names, too. Tunnels is safe for concurrent use.
type Tunnels struct {
	targets   Targets
	tlsConfig *tls.Config   // TLS of the connections inside the tunnels
	opened    chan net.Conn // from open to Accept

	closed    chan struct{} // closed by Close
	closeOnce sync.Once
}

// NewTunnels returns Tunnels to targets. tlsConfig is for TLS inside a tunnel (see [Certificates.TLS]).
func NewTunnels(targets Targets, tlsConfig *tls.Config) *Tunnels {
	return &Tunnels{targets: targets, tlsConfig: tlsConfig, opened: make(chan net.Conn), closed: make(chan struct{})}
}

// tunnelGranted is the answer to a CONNECT that is granted. It says HTTP/1.1 even if the CONNECT was sent in HTTP/1.0, as a
// server should (RFC 9110, 2.5).
const tunnelGranted = "HTTP/1.1 200 Connection established\r\n\r\n"

// open grants a CONNECT, and waits until Accept takes the tunnel. goproxy calls open with the *tunnelConn that [connectWriter]
// has made. open writes the answer within the deadline that connectWriter has set, and then removes that deadline.
func (t *Tunnels) open(_ *http.Request, conn net.Conn, _ *goproxy.ProxyCtx) {
	_, err := io.WriteString(conn, tunnelGranted)
	if err == nil {
		err = conn.SetDeadline(time.Time{})
	}
	if err != nil {
		_ = conn.Close()
		return
	}
	select {
	case t.opened <- conn:
	case <-t.closed:
		_ = conn.Close()
	}
}

// Accept implements [net.Listener]. It returns a [tls.Conn] without a handshake: the [http.Server] makes the handshake, and
// limits its time as on its own port.
func (t *Tunnels) Accept() (net.Conn, error) {
	select {
	case <-t.closed:
		return nil, net.ErrClosed
	case conn := <-t.opened:
		return tls.Server(conn, t.tlsConfig), nil
	}
}

// Close implements [net.Listener]. From then on, open closes tunnels, since nobody accepts them.
func (t *Tunnels) Close() error {
	t.closeOnce.Do(func() { close(t.closed) })
	return nil
}

// Addr implements [net.Listener].
func (t *Tunnels) Addr() net.Addr { return &net.UnixAddr{Name: "tunnel", Net: "tunnel"} }

// tunnelConn is the connection with the client that a tunnel runs over. Its RemoteAddr is the client's address.
type tunnelConn struct {
	net.Conn
	// in has all bytes that come in the tunnel. It begins with those that net/http has read after the CONNECT, since a client
	// may begin its TLS handshake before it has the answer (RFC 9110, 9.3.6).
	in io.Reader
}

// NetConn returns the connection that the tunnel runs over.
func (c *tunnelConn) NetConn() net.Conn { return c.Conn }

// Read implements [net.Conn].
func (c *tunnelConn) Read(p []byte) (int, error) { return c.in.Read(p) }
