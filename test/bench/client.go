package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/events"
)

// request is a GET that is measured.
type request struct {
	name string
	// path has the query. [bench.resolve] replaces newestRevision and middlePage in it.
	path, accept string
	gzip, http1  bool
	stream       bool          // a streaming list, which is read to the end of its initial events
	mustHit      bool          // listproxy must answer from memory
	changesPods  bool          // before each time, one pod of a hundred is changed
	clients      int           // that ask at a time, each over its own connection; 0 is one
	user         string        // of the control plane; "" is the admin
	tokens       []string      // one for each client, in place of the user's; may be nil
	spread       time.Duration // the time over which clients begin; 0 is at once
}

const (
	userAgent = "bench/v0.0.0 (linux/amd64) kubernetes/$Format"
	// newestRevision stands for kube-apiserver's newest revision, and middlePage for the token that continues after half
	// of the pods.
	newestRevision, middlePage = "NEWEST", "MIDDLE"
	// maxConnections is the number of connections over which a crowd asks.
	maxConnections = 100
	// A client that is refused comes again after retryInterval, up to maxRefusals times.
	maxRefusals   = 100
	retryInterval = time.Second
)

// connection returns the connection of a client to a server; clients share maxConnections.
func (b *bench) connection(cfg *rest.Config, http1 bool, client int) (*http.Client, error) {
	key := fmt.Sprint(cfg.Host, cfg.BearerToken, http1, client%maxConnections)
	if connection := b.connections[key]; connection != nil {
		return connection, nil
	}
	connection, err := newConnection(cfg, http1)
	if err == nil {
		b.connections[key] = connection
	}
	return connection, err
}

// newConnection returns a client that has one connection, as Go clients do.
func newConnection(cfg *rest.Config, http1 bool) (*http.Client, error) {
	tls, err := rest.TLSConfigFor(cfg)
	if err != nil {
		return nil, err
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(http1)
	protocols.SetHTTP2(!http1)
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig: tls, Protocols: protocols, MaxConnsPerHost: 1, ReadBufferSize: 64 << 10,
		DisableCompression: true, // bytes are counted as sent
	}}, nil
}

// send has clients send a request, each of them the same number of times, and adds the answers to r.
func (b *bench) send(ctx context.Context, to side, q request, clients, each int, r *result) error {
	cfg := b.config(to, q.user)
	var sending sync.WaitGroup
	var mu sync.Mutex // guards r and errs
	var errs error
	for client := range clients {
		cfg := cfg
		if len(q.tokens) > 0 {
			cfg = rest.CopyConfig(cfg)
			cfg.BearerToken = q.tokens[client]
		}
		connection, err := b.connection(cfg, q.http1, client)
		if err != nil {
			return err
		}
		sending.Go(func() {
			if q.spread > 0 && !clock.Sleep(ctx, q.spread*time.Duration(client)/time.Duration(clients)) {
				return
			}
			for range each {
				a, err := q.sendUntilAnswered(ctx, connection, cfg)
				mu.Lock()
				r.add(a)
				errs = errors.Join(errs, err)
				mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	sending.Wait()
	if errs != nil {
		return fmt.Errorf("GET %s: %.500w", q.path, errs)
	}
	return nil
}

// answer is what one request got.
type answer struct {
	took     time.Duration // to the last byte, refusals before it included
	bytes    int64         // of the body, as sent
	hit      bool
	refusals int
}

// sendUntilAnswered sends a request again while it is refused, as clients of Kubernetes do. A streaming list that ends too
// early counts as refused: kube-apiserver ends those that it cannot write in time.
func (q request) sendUntilAnswered(ctx context.Context, connection *http.Client, cfg *rest.Config) (a answer, err error) {
	begun := time.Now()
	for refusals := 0; ; refusals++ {
		var isRefused bool
		a, isRefused, err = q.sendOnce(ctx, connection, cfg)
		a.refusals, a.took = refusals, time.Since(begun)
		if !isRefused || refusals == maxRefusals || !clock.Sleep(ctx, retryInterval) {
			return a, err
		}
	}
}

// sendOnce sends a request and reads its answer. isRefused reports whether a client would come again.
func (q request) sendOnce(ctx context.Context, connection *http.Client, cfg *rest.Config) (a answer, isRefused bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the watch of a streaming list
	resp, err := q.open(ctx, connection, cfg)
	if err != nil {
		return a, q.stream, err
	}
	defer resp.Body.Close()
	a.hit = ask.FromMemory(resp.Header)
	counted := &countingReader{r: resp.Body}
	switch {
	case resp.StatusCode != http.StatusOK:
		return a, resp.StatusCode == http.StatusTooManyRequests, errors.New(resp.Status)
	case q.stream && resp.Header.Get("Content-Encoding") == "gzip":
		err = events.SkipInitial(events.Unzip(counted))
	case q.stream:
		err = events.SkipInitial(counted)
	default:
		_, err = io.Copy(io.Discard, counted)
	}
	a.bytes = counted.n
	return a, q.stream && errors.Is(err, io.ErrUnexpectedEOF), err
}

// open sends the request, and returns before the body is read.
func (q request) open(ctx context.Context, connection *http.Client, cfg *rest.Config) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, cfg.Host+q.path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", q.accept)
	req.Header.Set("User-Agent", userAgent)
	req.Header.Set("Authorization", "Bearer "+cfg.BearerToken)
	req.Header.Set("Accept-Encoding", "identity")
	if q.gzip {
		req.Header.Set("Accept-Encoding", "gzip")
	}
	return connection.Do(req)
}

// countingReader counts the bytes that are read.
type countingReader struct {
	r io.Reader
	n int64
}

// Read implements [io.Reader].
func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}
