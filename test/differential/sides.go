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
)

// userAgent of the comparators: neither a browser's nor a command line's, which get indented JSON.
const userAgent = "differential"

// Side is one of the two that are asked.
type Side struct {
	name         string
	base         string
	http1, http2 *http.Client
}

// NewSide returns a side that listens on base with a certificate of ca. Nothing is decompressed
// and no redirect is followed on the way.
func NewSide(name, base string, ca []byte) *Side {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	client := func(h2 bool) *http.Client {
		protocols := new(http.Protocols)
		protocols.SetHTTP1(!h2)
		protocols.SetHTTP2(h2)
		return &http.Client{
			Transport: &http.Transport{
				TLSClientConfig:     &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
				Protocols:           protocols,
				DisableCompression:  true,
				MaxIdleConnsPerHost: 64,
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
	}
	return &Side{name: name, base: base, http1: client(false), http2: client(true)}
}

// Answer is what a side said.
type Answer struct {
	Status int
	Header http.Header
	// Body after content decoding.
	Body []byte
}

// Ask puts a question. Bodies that break off are an error.
func (s *Side) Ask(ctx context.Context, q Question) (Answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.base+q.target(), nil)
	if err != nil {
		return Answer{}, err
	}
	maps.Copy(req.Header, q.Header)
	if _, ok := req.Header["User-Agent"]; !ok {
		req.Header.Set("User-Agent", userAgent)
	}
	if q.User.Token != "" {
		req.Header.Set("Authorization", "Bearer "+q.User.Token)
	}
	client := s.http2
	if q.HTTP1 {
		client = s.http1
	}
	resp, err := client.Do(req)
	if err != nil {
		return Answer{}, fmt.Errorf("%s: %w", s.name, err)
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
