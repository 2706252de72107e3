package proxytest

import (
	"bufio"
	"compress/gzip"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/inmemory"
)

// UpstreamServer takes the place of a kube-apiserver. It speaks TLS, and asks for client certificates without requiring them.
type UpstreamServer struct{ *httptest.Server }

// The values of parameters named http2, for tests with one protocol.
const (
	HTTP1 = false
	HTTP2 = true
)

// StartUpstream serves handler until the test ends.
func StartUpstream(t *testing.T, http2 bool, handler http.HandlerFunc) UpstreamServer {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.EnableHTTP2 = http2
	server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	return UpstreamServer{server}
}

// Config returns a client's configuration without credentials.
func (u UpstreamServer) Config() *rest.Config {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: u.Certificate().Raw})
	return &rest.Config{Host: u.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
}

// Transport is an [http.RoundTripper] as a function.
type Transport func(*http.Request) (*http.Response, error)

// RoundTrip calls t.
func (t Transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

// Get sends a GET and returns the response, whose body is closed when the test ends.
func Get(t *testing.T, client *http.Client, url string) *http.Response {
	t.Helper()
	return Do(t, client, httptest.NewRequestWithContext(t.Context(), http.MethodGet, url, nil))
}

// Do sends r and returns the response, whose body is closed when the test ends.
func Do(t *testing.T, client *http.Client, r *http.Request) *http.Response {
	t.Helper()
	r.RequestURI = "" // only servers have it
	res, err := client.Do(r)
	expect.NoError(t, err)
	t.Cleanup(func() { _ = res.Body.Close() })
	return res
}

// ReadAll returns all of r.
func ReadAll(t *testing.T, r io.Reader) string {
	t.Helper()
	body, err := io.ReadAll(r)
	expect.NoError(t, err)
	return string(body)
}

// AssertNotContains fails the test if text has secret in it.
func AssertNotContains(t *testing.T, text, secret string) {
	t.Helper()
	if strings.Contains(text, secret) {
		t.Errorf("%q is in %q", secret, text)
	}
}

// AssertStatus fails the test unless res is a Status of a failure with this code and reason, and any message.
func AssertStatus(t *testing.T, res *http.Response, code int, reason metav1.StatusReason) {
	t.Helper()
	var got metav1.Status
	body := ReadAll(t, res.Body)
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatalf("%s: %v in %q", res.Status, err, body)
	}
	if got.Message == "" {
		t.Error("the status has no message")
	}
	got.Message = ""
	want := metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Reason: reason, Code: int32(code),
	}
	if diff := cmp.Diff(want, got); diff != "" || res.StatusCode != code {
		t.Errorf("%s, status (-want +got):\n%s", res.Status, diff)
	}
	if got := res.Header.Get("Content-Type"); got != "application/json" {
		t.Errorf("Content-Type %q", got)
	}
}

// SendRaw sends an HTTP/1.1 request byte for byte on a new connection, and returns the response, the connection and a reader of
// what follows. All are closed when the test ends.
func SendRaw(t *testing.T, to *httptest.Server, request string) (*http.Response, *tls.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := tls.Dial("tcp", to.Listener.Addr().String(), &tls.Config{
		RootCAs: to.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs, ServerName: "example.com",
	})
	expect.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_, err = conn.Write([]byte(request))
	expect.NoError(t, err)
	reader := bufio.NewReader(conn)
	res, err := http.ReadResponse(reader, nil)
	expect.NoError(t, err)
	t.Cleanup(func() { _ = res.Body.Close() })
	return res, conn, reader
}

// WebToken returns the Authorization value of a JSON web token with these claims and a signature that need not be valid.
func WebToken(claims, signature string) string {
	return "Bearer e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + "." + signature
}

// StartInPipes runs server with TLS in a bubble of testing/synctest, until the test ends. Clients connect by pipes, connections
// in memory: the server's Client does, and so does the Dial of the returned listener.
func StartInPipes(t *testing.T, server *httptest.Server) *inmemory.Listener {
	t.Helper()
	return startInPipes(t, server, server.StartTLS, "https")
}

// StartWithoutTLSInPipes is StartInPipes without TLS. It is for tests in which client and server may close a connection at
// the same time: with TLS, each could wait for the other to read its last record, since a pipe has no buffer.
func StartWithoutTLSInPipes(t *testing.T, server *httptest.Server) {
	t.Helper()
	startInPipes(t, server, server.Start, "http")
}

// startInPipes starts server by start and connects its Client to it.
func startInPipes(t *testing.T, server *httptest.Server, start func(), scheme string) *inmemory.Listener {
	t.Helper()
	listener := inmemory.NewListener()
	_ = server.Listener.Close()
	server.Listener = listener
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	start()
	t.Cleanup(server.Close)
	server.URL = scheme + "://127.0.0.1" // a name in the certificate
	server.Client().Transport.(*http.Transport).DialContext = listener.Dial
	return listener
}

// Serve runs server with TLS on a port of loopback until the test ends. The Client of the returned server trusts its
// certificate, speaks HTTP/2 if http2 is true, and leaves redirects and compressed answers as they are.
func Serve(t testing.TB, server *http.Server, http2 bool) *httptest.Server {
	t.Helper()
	front := httptest.NewUnstartedServer(nil)
	front.Config = server
	front.EnableHTTP2 = http2
	front.StartTLS()
	t.Cleanup(front.Close)
	client := front.Client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	transport := client.Transport.(*http.Transport)
	transport.DisableCompression = true
	transport.ExpectContinueTimeout = time.Hour
	return front
}

// Listen returns a listener on a free port.
func Listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	expect.NoError(t, err)
	return listener
}

// SwitchTo returns a handler that accepts any upgrade, sends the client's X-Stream-Protocol-Version back as X-Seen, and lets
// serve use the connection.
func SwitchTo(t *testing.T, serve func(rw *bufio.ReadWriter)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 1 {
			t.Errorf("the upgrade came over %s", r.Proto)
		}
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = conn.Close() }()
		_, _ = fmt.Fprintf(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\nX-Seen: %s\r\n\r\n",
			r.Header.Get("Upgrade"), r.Header["X-Stream-Protocol-Version"])
		_ = rw.Flush()
		serve(rw)
	}
}

// ServeInPipes runs server without TLS in a bubble of testing/synctest, until the test ends. Clients connect by the Dial of the
// returned listener.
func ServeInPipes(t *testing.T, server *http.Server) *inmemory.Listener {
	t.Helper()
	listener, done := inmemory.NewListener(), make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener) // until it is closed
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	return listener
}

// ServePipe is ServeInPipes for a handler. It returns a client with the smallest possible HTTP/2 windows: the server soon has
// to wait until the client reads. dial opens a connection without that client, for requests that a test writes by hand.
func ServePipe(t *testing.T, handler http.Handler, http2 bool) (client *http.Client, dial func() net.Conn) {
	t.Helper()
	var protocols http.Protocols
	protocols.SetHTTP1(!http2)
	protocols.SetUnencryptedHTTP2(http2)
	listener := ServeInPipes(t, &http.Server{Handler: handler, Protocols: &protocols, ReadHeaderTimeout: time.Hour})
	transport := &http.Transport{
		DialContext: listener.Dial, Protocols: &protocols,
		HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: 64 << 10},
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}, func() net.Conn {
		conn, _ := listener.Dial(t.Context(), "", "")
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
}

// StuckUpload is a request, for SendRaw, whose body of ten bytes never comes.
const StuckUpload = "POST /api/v1/namespaces/a/pods HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n"

// GzipMember returns events as kube-apiserver sends them in one flush of a compressed stream.
func GzipMember(events string) string {
	var out strings.Builder
	w := gzip.NewWriter(&out)
	_, _ = io.WriteString(w, events)
	_ = w.Flush()
	_ = w.Close()
	return out.String()
}
