package attacks

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	h2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/listproxy/listproxy/proxy/serve"
)

// A wiretap is between listproxy and the API server: it ends the TLS of both, passes on every byte,
// and reads the headers of the requests. The API server's audit log does not have these, and what
// is wrong in them may do no harm today, since listproxy shows the API server no certificate.
type wiretap struct {
	listener net.Listener
	upstream string // host:port
	roots    *x509.CertPool
	ca       []byte
	// own is listproxy's own Authorization.
	own string

	mu         sync.Mutex
	requests   int
	complaints []string
}

// newWiretap listens before the API server at upstream, whose certificate ca has signed.
func newWiretap(dir, upstream string, ca []byte, own string) (*wiretap, error) {
	certPath, keyPath, err := serve.SelfSigned(filepath.Join(dir, "wiretap"), nil)
	if err != nil {
		return nil, err
	}
	serving, err := tls.LoadX509KeyPair(certPath, keyPath)
	if err != nil {
		return nil, err
	}
	w := &wiretap{upstream: strings.TrimPrefix(upstream, "https://"), roots: x509.NewCertPool(), own: "Bearer " + own}
	w.roots.AppendCertsFromPEM(ca)
	if w.ca, err = os.ReadFile(certPath); err != nil { // #nosec G304 -- just written
		return nil, err
	}
	if w.listener, err = tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{serving}, NextProtos: []string{http2, "http/1.1"}, MinVersion: tls.VersionTLS12,
	}); err != nil {
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
	protocol := client.ConnectionState().NegotiatedProtocol
	config := &tls.Config{RootCAs: w.roots, MinVersion: tls.VersionTLS12, CurvePreferences: cheapCurves}
	if protocol != "" {
		config.NextProtos = []string{protocol}
	}
	api, err := tls.Dial("tcp", w.upstream, config)
	if err != nil {
		return
	}
	defer func() { _ = api.Close() }()
	heard, mouth := io.Pipe()
	go func() {
		if protocol == http2 {
			w.readHTTP2(heard)
		} else {
			w.readHTTP1(heard)
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

func (w *wiretap) readHTTP1(r io.Reader) {
	in := bufio.NewReader(r)
	for {
		req, err := http.ReadRequest(in)
		if err != nil {
			w.ended(err)
			return
		}
		w.note(req.Header)
		if req.Header.Get("Upgrade") != "" {
			return // what follows may be no HTTP
		}
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			return // it was cut off
		}
	}
}

func (w *wiretap) readHTTP2(r io.Reader) {
	if _, err := io.ReadFull(r, make([]byte, len(h2.ClientPreface))); err != nil {
		return
	}
	framer := h2.NewFramer(io.Discard, r)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			w.ended(err)
			return
		}
		f, ok := frame.(*h2.MetaHeadersFrame)
		if !ok || f.PseudoValue("method") == "" { // trailers
			continue
		}
		header := http.Header{}
		for _, field := range f.RegularFields() {
			header.Add(field.Name, field.Value)
		}
		w.note(header)
	}
}

// ended complains if a connection could not be read to its end.
func (w *wiretap) ended(err error) {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.complaints = append(w.complaints, fmt.Sprintf("a connection could not be read: %v", err))
}

// attacksRequest is the identifier of a request that some attack has sent.
var attacksRequest = regexp.MustCompile(`^a[0-9]{5}\.`)

// note looks at the header of a request that arrives at the API server.
func (w *wiretap) note(h http.Header) {
	var found []string
	for name := range h {
		lower := strings.ToLower(name)
		if lower == "forwarded" || lower == "x-real-ip" || strings.HasPrefix(lower, "x-remote-") ||
			strings.HasPrefix(lower, "x-forwarded-") && lower != "x-forwarded-for" {
			found = append(found, name+" has arrived")
		}
	}
	if id := h.Get("Audit-Id"); attacksRequest.MatchString(id) {
		if from := h["X-Forwarded-For"]; !slices.Equal(from, []string{"127.0.0.1"}) {
			found = append(found, fmt.Sprintf("X-Forwarded-For is %q", from))
		}
		if slices.Contains(h["Authorization"], w.own) && (len(h["Impersonate-User"]) != 1 || len(h["Impersonate-Group"]) == 0 || len(h["Authorization"]) != 1) {
			found = append(found, "listproxy's own credentials have arrived without a user")
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.requests++
	for _, f := range found {
		w.complaints = append(w.complaints, h.Get("Audit-Id")+": "+f)
	}
}

// testWiretap says what arrived that should not.
func testWiretap(t *testing.T) {
	tap.mu.Lock()
	defer tap.mu.Unlock()
	if tap.requests == 0 {
		t.Error("the wiretap has heard nothing")
	}
	for _, c := range tap.complaints {
		t.Error(c)
	}
}

// TestWiretap makes sure that it hears, in both protocols.
func TestWiretap(t *testing.T) {
	bad := []string{"X-Remote-User: x", "Forwarded: for=x", "X-Forwarded-Host: x", "Authorization: Bearer own"}
	const want = len("1234") + len("X") // each of them, and no X-Forwarded-For
	for protocol, read := range map[string]func(*wiretap, io.Reader){http1: (*wiretap).readHTTP1, http2: (*wiretap).readHTTP2} {
		a := attack{target: "/", header: append([]string{"Audit-Id: a00000.2"}, bad...), bare: true}
		heard := &wiretap{own: "Bearer own"}
		var sent bytes.Buffer
		fill := strings.NewReplacer("{id}", "a00000", "{host}", "x")
		if protocol == http1 {
			sent.WriteString(fill.Replace(a.http1()))
		} else {
			sent.WriteString(h2.ClientPreface)
			w := &wire{framer: h2.NewFramer(&sent, nil), fill: fill, opened: map[uint32]bool{}}
			w.coder = hpack.NewEncoder(&w.block)
			a.http2(w)
		}
		read(heard, &sent)
		if heard.requests != 1 || len(heard.complaints) != want {
			t.Errorf("%s: of %d requests it complained %q", protocol, heard.requests, heard.complaints)
		}
	}
}
