package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// server is where requests go.
type server struct {
	URL   string
	CA    []byte // PEM
	Token string
}

// load is an order to send one request many times, as Go clients send it.
type load struct {
	Server  server
	Path    string // with the query
	Accept  string
	Gzip    bool
	HTTP1   bool
	Clients int // how many ask at a time, each on a connection of its own
	Each    int // how often each asks
	// Streams is how many requests each client has under way at a time; 0 is one.
	Streams int
	// Sizes allows bodies of several sizes.
	Sizes bool
	// Hit: only an answer from memory is right.
	Hit bool
	// Refusals allows 429s, which are counted.
	Refusals bool
	// Size: only a body of so many bytes, as sent, is right. 0: any, but the same each time.
	Size int64
}

// outcome is what came of a load.
type outcome struct {
	Error   string
	Size    int64           // of one body as sent
	Times   []time.Duration // of each request, to its last byte, sorted
	Elapsed time.Duration   // of all
	Refused int             // were answered with 429
	Hits    int             // came from memory
}

func (o outcome) median() time.Duration { return quantile(o.Times, 0.5) }

// quantile of sorted times.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// connections are kept from one order to the next. There is one for each client of each server.
type connections struct {
	mu   sync.Mutex
	kept map[string]*http.Client
}

func (c *connections) client(s server, http1 bool, number int) (*http.Client, error) {
	key := fmt.Sprint(s.URL, http1, number)
	c.mu.Lock()
	defer c.mu.Unlock()
	if kept := c.kept[key]; kept != nil {
		return kept, nil
	}
	made, err := newHTTPClient(s, http1)
	if err == nil {
		c.kept[key] = made
	}
	return made, err
}

// newHTTPClient returns a client with one connection.
func newHTTPClient(s server, http1 bool) (*http.Client, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(s.CA) {
		return nil, fmt.Errorf("no certificate authority for %s", s.URL)
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(http1)
	protocols.SetHTTP2(!http1)
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig:    &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		Protocols:          protocols,
		DisableCompression: true, // what was sent is counted
		MaxConnsPerHost:    1,
		ReadBufferSize:     64 << 10,
	}}, nil
}

// runClient is the role of the client: it reads and throws away, in a process of its own.
func runClient(ctx context.Context, in io.Reader, out io.Writer) error {
	kept := &connections{kept: map[string]*http.Client{}}
	return obey(ctx, in, out, kept.run)
}

// run carries out an order.
func (c *connections) run(ctx context.Context, l load) outcome {
	var (
		all    sync.WaitGroup
		mu     sync.Mutex
		o      outcome
		failed error
		size   atomic.Int64
	)
	size.Store(l.Size)
	begun := time.Now()
	for number := range l.Clients {
		client, err := c.client(l.Server, l.HTTP1, number)
		if err != nil {
			return outcome{Error: err.Error()}
		}
		ask := func() {
			for range l.Each {
				one, err := l.once(ctx, client)
				if l.Refusals && errors.Is(err, errRefused) {
					mu.Lock()
					o.Refused++
					mu.Unlock()
					continue
				}
				if err == nil && !l.Sizes && !size.CompareAndSwap(0, one.Size) && size.Load() != one.Size {
					err = fmt.Errorf("a body of %d bytes, not of %d", one.Size, size.Load())
				}
				mu.Lock()
				failed = errors.Join(failed, err)
				o.Times = append(o.Times, one.Elapsed)
				o.Size, o.Hits = one.Size, o.Hits+one.Hits
				mu.Unlock()
				if err != nil {
					return
				}
			}
		}
		for range max(1, l.Streams) {
			all.Go(ask)
		}
	}
	all.Wait()
	o.Elapsed = time.Since(begun)
	if failed != nil {
		o.Error = fmt.Sprintf("GET %s: %v", l.Path, failed)
	}
	slices.Sort(o.Times)
	return o
}

var errRefused = errors.New("refused with 429")

// once sends the request and reads the answer to its end.
func (l load) once(ctx context.Context, client *http.Client) (outcome, error) {
	req, err := l.request(ctx)
	if err != nil {
		return outcome{}, err
	}
	begun := time.Now()
	resp, err := client.Do(req)
	if err != nil {
		return outcome{}, err
	}
	defer resp.Body.Close()
	var o outcome
	o.Size, err = io.Copy(io.Discard, resp.Body)
	o.Elapsed = time.Since(begun)
	status := resp.Header.Get("Cache-Status")
	if strings.HasPrefix(status, "listproxy; hit") {
		o.Hits = 1
	}
	switch {
	case err != nil:
		return o, err
	case resp.StatusCode == http.StatusTooManyRequests:
		return o, errRefused
	case resp.StatusCode != http.StatusOK:
		return o, errors.New(resp.Status)
	case l.Hit && !strings.HasPrefix(status, "listproxy; hit"):
		return o, fmt.Errorf("not from memory but %q", status)
	}
	return o, nil
}

// request is what is sent.
func (l load) request(ctx context.Context) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, l.Server.URL+l.Path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", l.Accept)
	req.Header.Set("User-Agent", "bench/v0.0.0 (linux/amd64) kubernetes/$Format")
	req.Header.Set("Accept-Encoding", "identity")
	if l.Gzip {
		req.Header.Set("Accept-Encoding", "gzip")
	}
	if l.Server.Token != "" {
		req.Header.Set("Authorization", "Bearer "+l.Server.Token)
	}
	return req, nil
}
