package differential

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"maps"
	"net/http"
	"sync"

	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/events"
)

// userAgent of the comparators: neither a browser's nor a command line's, which get indented JSON.
const userAgent = "differential"

// side is one of the two that are asked. It is safe for concurrent use.
type side struct {
	name  string
	base  string
	roots *x509.CertPool

	mu      sync.Mutex
	clients map[clientKey]*http.Client
}

// clientKey is what connections are shared by.
type clientKey struct {
	http2       bool
	certificate *tls.Certificate
}

// newSide returns a side that listens on base with a certificate of ca. Nothing is decompressed
// and no redirect is followed on the way.
func newSide(name, base string, ca []byte) *side {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	return &side{name: name, base: base, roots: roots, clients: map[clientKey]*http.Client{}}
}

// client returns the connections of those who log in alike.
func (s *side) client(key clientKey) *http.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	if client := s.clients[key]; client != nil {
		return client
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!key.http2)
	protocols.SetHTTP2(key.http2)
	config := &tls.Config{RootCAs: s.roots, MinVersion: tls.VersionTLS12}
	if key.certificate != nil {
		config.Certificates = []tls.Certificate{*key.certificate}
	}
	s.clients[key] = &http.Client{
		Transport:     &http.Transport{TLSClientConfig: config, Protocols: protocols, DisableCompression: true, MaxIdleConnsPerHost: 64},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return s.clients[key]
}

// open puts a question, and returns when the header of the answer is there. The body is decoded.
func (s *side) open(ctx context.Context, q question) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.base+q.target(), nil)
	if err != nil {
		return nil, err
	}
	maps.Copy(req.Header, q.Header)
	if _, ok := req.Header["User-Agent"]; !ok {
		req.Header.Set("User-Agent", userAgent)
	}
	if q.User.Token != "" {
		req.Header.Set("Authorization", "Bearer "+q.User.Token)
	}
	maps.Copy(req.Header, q.User.As)
	resp, err := s.client(clientKey{http2: !q.HTTP1, certificate: q.User.Certificate}).Do(req)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.name, err)
	}
	if resp.Header.Get("Content-Encoding") == "gzip" {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{events.Unzip(resp.Body), resp.Body}
	}
	return resp, nil
}

// ask puts a question. Bodies that break off are an error.
func (s *side) ask(ctx context.Context, q question) (ask.Answer, error) {
	resp, err := s.open(ctx, q)
	if err != nil {
		return ask.Answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return ask.Answer{}, fmt.Errorf("%s: %w", s.name, err)
	}
	return ask.Answer{Code: resp.StatusCode, Header: resp.Header, Body: body}, nil
}
