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

// userAgent is a User-Agent that gets compact JSON. Browsers' and curl's get indented JSON.
const userAgent = "differential"

// side is one of the two servers that are compared. It is safe for concurrent use.
type side struct {
	name  string
	base  string
	roots *x509.CertPool

	mu      sync.Mutex
	clients map[clientKey]*http.Client
}

// clientKey is what requests on one connection have in common.
type clientKey struct {
	http2       bool
	certificate *tls.Certificate
}

// newSide returns the side at the URL base, whose certificate ca signed. Redirects are not followed.
func newSide(name, base string, ca []byte) *side {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	return &side{name: name, base: base, roots: roots, clients: map[clientKey]*http.Client{}}
}

// client returns the one client of a key.
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
		Transport:     &unzipTransport{http.Transport{TLSClientConfig: config, Protocols: protocols, DisableCompression: true, MaxIdleConnsPerHost: 64}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return s.clients[key]
}

// unzipTransport decompresses bodies, and leaves Content-Encoding in the header.
type unzipTransport struct{ http.Transport }

// RoundTrip implements [http.RoundTripper].
func (u *unzipTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := u.Transport.RoundTrip(r)
	if err == nil && resp.Header.Get("Content-Encoding") == "gzip" {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{events.Unzip(resp.Body), resp.Body}
	}
	return resp, err
}

// clientOf returns a client with the credentials and headers of a question.
func (s *side) clientOf(q question) *ask.Client {
	header := http.Header{"Accept": nil, "User-Agent": {userAgent}}
	maps.Copy(header, q.Header)
	if q.User.Token != "" {
		header.Set("Authorization", "Bearer "+q.User.Token)
	}
	maps.Copy(header, q.User.Impersonation)
	return &ask.Client{Base: s.base, HTTP: s.client(clientKey{http2: !q.HTTP1, certificate: q.User.Certificate}), Header: header}
}

// ask sends a question and returns the whole answer. A body that breaks off is an error.
func (s *side) ask(ctx context.Context, q question) (ask.Answer, error) {
	a, err := s.clientOf(q).Get(ctx, q.target())
	if err != nil {
		err = fmt.Errorf("%s: %w", s.name, err)
	}
	return a, err
}
