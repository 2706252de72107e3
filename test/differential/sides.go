package differential

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"maps"
	"net/http"
	"sync"

	"github.com/listproxy/listproxy/test/controlplane"
)

// userAgent of the comparators: neither a browser's nor a command line's, which get indented JSON.
const userAgent = "differential"

// Side is one of the two that are asked.
type Side struct {
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

// NewSide returns a side that listens on base with a certificate of ca. Nothing is decompressed
// and no redirect is followed on the way. Safe for concurrent use.
func NewSide(name, base string, ca []byte) *Side {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	return &Side{name: name, base: base, roots: roots, clients: map[clientKey]*http.Client{}}
}

// client returns the connections of those who log in alike.
func (s *Side) client(key clientKey) *http.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	if client := s.clients[key]; client != nil {
		return client
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!key.http2)
	protocols.SetHTTP2(key.http2)
	tlsConfig := &tls.Config{RootCAs: s.roots, MinVersion: tls.VersionTLS12}
	if key.certificate != nil {
		tlsConfig.Certificates = []tls.Certificate{*key.certificate}
	}
	transport := &http.Transport{
		TLSClientConfig:     tlsConfig,
		Protocols:           protocols,
		DisableCompression:  true,
		MaxIdleConnsPerHost: 64,
	}
	client := &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	s.clients[key] = client
	return client
}

// Answer is what a side said.
type Answer struct {
	Status int
	Header http.Header
	// Body after content decoding.
	Body []byte
}

// Open puts a question, and returns when the header of the answer is there, for who reads a stream.
func (s *Side) Open(ctx context.Context, q Question) (*http.Response, error) {
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
	return resp, nil
}

// Ask puts a question. Bodies that break off are an error.
func (s *Side) Ask(ctx context.Context, q Question) (Answer, error) {
	resp, err := s.Open(ctx, q)
	if err != nil {
		return Answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return Answer{}, fmt.Errorf("%s: %w", s.name, err)
	}
	if resp.Header.Get("Content-Encoding") == "gzip" {
		unzip, err := gzip.NewReader(bytes.NewReader(body))
		if err != nil {
			return Answer{}, fmt.Errorf("%s: %w", s.name, err)
		}
		if body, err = io.ReadAll(unzip); err != nil {
			return Answer{}, fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return Answer{Status: resp.StatusCode, Header: resp.Header, Body: body}, nil
}

// Direct is the API server's side.
func Direct(plane *controlplane.ControlPlane) *Side {
	return NewSide("kube-apiserver", plane.URL(), plane.CA())
}
