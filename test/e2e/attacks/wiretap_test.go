package attacks

import (
	"bufio"
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	h2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/listproxy/listproxy/test/controlplane"
)

// A wiretap is between listproxy and the API server: it ends the TLS of both, passes on every byte,
// and reads the headers of the requests. The API server's audit log does not have these, and what
// is wrong in them may do no harm today, since listproxy shows the API server no certificate.
type wiretap struct {
	listener net.Listener
	upstream string // host:port
	roots    *x509.CertPool
	// own is listproxy's own Authorization.
	own string

	mu         sync.Mutex
	heard      map[string]int // requests, by protocol
	complaints []string
}

// newWiretap listens before the API server, with a certificate of its CA.
func newWiretap(cp *controlplane.ControlPlane) (*wiretap, error) {
	cert, key, err := cp.IssueServingCert("localhost")
	if err != nil {
		return nil, err
	}
	serving, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, err
	}
	w := &wiretap{
		upstream: strings.TrimPrefix(cp.URL(), "https://"), roots: x509.NewCertPool(), own: "Bearer " + cp.Token(controlplane.Feed),
		heard: map[string]int{},
	}
	w.roots.AppendCertsFromPEM(cp.CA())
	w.listener, err = tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{serving}, NextProtos: []string{http2, http1}, MinVersion: tls.VersionTLS12,
	})
	if err != nil {
		return nil, err
	}
	go w.serve()
	return w, nil
}

// URL is where listproxy finds its API server.
func (w *wiretap) URL() string { return "https://" + w.listener.Addr().String() }

func (w *wiretap) serve() {
	for {
		conn, err := w.listener.Accept()
		if err != nil {
			return
		}
		if secured, ok := conn.(*tls.Conn); ok {
			go w.relay(secured)
		}
	}
}

// relay passes on what comes, in both directions, until one ends.
func (w *wiretap) relay(client *tls.Conn) {
	defer func() { _ = client.Close() }()
	if err := client.Handshake(); err != nil {
		return
	}
	protocol := cmp.Or(client.ConnectionState().NegotiatedProtocol, http1)
	config := &tls.Config{RootCAs: w.roots, NextProtos: []string{protocol}, MinVersion: tls.VersionTLS12, CurvePreferences: cheapCurves}
	api, err := tls.Dial("tcp", w.upstream, config)
	if err != nil {
		return
	}
	defer func() { _ = api.Close() }()
	heard, mouth := io.Pipe()
	go func() {
		read := w.readHTTP1
		if protocol == http2 {
			read = w.readHTTP2
		}
		// Who is cut off may be within a request.
		if err := read(heard); err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			w.complain("a connection could not be read", err.Error())
		}
		_, _ = io.Copy(io.Discard, heard)
	}()
	go func() {
		defer func() { _, _ = api.Close(), client.Close() }()
		_, _ = io.Copy(client, api)
	}()
	_, _ = io.Copy(api, io.TeeReader(client, mouth))
	_ = mouth.Close()
}

func (w *wiretap) readHTTP1(r io.Reader) error {
	in := bufio.NewReader(r)
	for {
		req, err := http.ReadRequest(in)
		if err != nil {
			return err
		}
		w.note(http1, req.Header)
		if req.Header.Get("Upgrade") != "" {
			return nil // what follows may be no HTTP
		}
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			return nil //nolint:nilerr // it was cut off
		}
	}
}

func (w *wiretap) readHTTP2(r io.Reader) error {
	if _, err := io.ReadFull(r, make([]byte, len(h2.ClientPreface))); err != nil {
		return err
	}
	framer := h2.NewFramer(io.Discard, r)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			return err
		}
		if f, ok := frame.(*h2.MetaHeadersFrame); ok && f.PseudoValue("method") != "" { // else they are trailers
			w.note(http2, headerOf(f))
		}
	}
}

func (w *wiretap) complain(of, what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.complaints = append(w.complaints, of+": "+what)
}

// attacksRequest is the identifier of a request that some attack has sent.
var attacksRequest = regexp.MustCompile(`^a[0-9]{5}\.`)

// note looks at the header of a request that arrives at the API server.
func (w *wiretap) note(protocol string, h http.Header) {
	w.mu.Lock()
	w.heard[protocol]++
	w.mu.Unlock()
	id := h.Get("Audit-Id")
	for name := range h {
		lower := strings.ToLower(name)
		if lower == "forwarded" || lower == "x-real-ip" || strings.HasPrefix(lower, "x-remote-") ||
			strings.HasPrefix(lower, "x-forwarded-") && lower != "x-forwarded-for" {
			w.complain(id, name+" has arrived")
		}
	}
	if attacksRequest.MatchString(id) {
		if from := h["X-Forwarded-For"]; !slices.Equal(from, []string{"127.0.0.1"}) {
			w.complain(id, fmt.Sprintf("X-Forwarded-For is %q", from))
		}
		if slices.Contains(h["Authorization"], w.own) && (len(h["Impersonate-User"]) != 1 || len(h["Impersonate-Group"]) == 0 || len(h["Authorization"]) != 1) {
			w.complain(id, "listproxy's own credentials have arrived without a user")
		}
	}
}

// testWiretap says what arrived that should not.
func testWiretap(t *testing.T) {
	tap.mu.Lock()
	defer tap.mu.Unlock()
	if tap.heard[http1] == 0 || tap.heard[http2] == 0 {
		t.Errorf("the wiretap has heard %v", tap.heard)
	}
	for _, c := range tap.complaints {
		t.Error(c)
	}
}
