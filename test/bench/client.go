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
	name        string
	path        string // with the query; [bench.resolve] replaces newestRevision and middlePage
	accept      string
	gzip        bool
	version     httpVersion
	stream      bool          // it is a streaming list, and is read up to the end of its initial events
	mustHit     bool          // listproxy must answer from memory
	changesPods bool          // one pod of a hundred is changed before each time
	clients     int           // how many clients send it at the same time; 0 is one
	user        string        // of the control plane; "" is the admin
	tokens      []string      // one for each client, in place of the user's; may be nil
	spread      time.Duration // the time over which clients begin; 0 is at once
}

// httpVersion is the version of HTTP of a connection.
type httpVersion int

const (
	http2 httpVersion = iota
	http1
)

// volume is how many clients send a request, and how often each of them does, one time after the other.
type volume struct{ clients, perClient int }

// once is one request of one client.
var once = volume{clients: 1, perClient: 1}

const (
	userAgent = "bench/v0.0.0 (linux/amd64) kubernetes/$Format"
	// newestRevision stands for kube-apiserver's newest revision in a request's path.
	newestRevision = "NEWEST"
	// middlePage stands for the token that continues after half of the pods.
	middlePage = "MIDDLE"
	// maxConnections is the number of connections over which a crowd asks.
	maxConnections = 100
	// maxRefusals is how often a client tries again that is refused.
	maxRefusals = 100
	// retryInterval is the time before a client tries again.
	retryInterval = time.Second
)

// connection returns the connection of a client to a server. Clients beyond maxConnections share those of others.
func (b *bench) connection(cfg *rest.Config, version httpVersion, client int) (*http.Client, error) {
	key := fmt.Sprint(cfg.Host, cfg.BearerToken, version, client%maxConnections)
	if connection := b.connections[key]; connection != nil {
		return connection, nil
	}
	connection, err := newConnection(cfg, version)
	if err == nil {
		b.connections[key] = connection
	}
	return connection, err
}

// newConnection returns an HTTP client with one connection, as Go clients of Kubernetes have.
func newConnection(cfg *rest.Config, version httpVersion) (*http.Client, error) {
	tls, err := rest.TLSConfigFor(cfg)
	if err != nil {
		return nil, err
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(version == http1)
	protocols.SetHTTP2(version == http2)
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig: tls, Protocols: protocols, MaxConnsPerHost: 1, ReadBufferSize: 64 << 10,
		DisableCompression: true, // bytes are counted as sent
	}}, nil
}

// send has clients send a request, and adds the answers to r.
func (b *bench) send(ctx context.Context, target side, q request, v volume, r *row) error {
	userConfig := b.config(target, q.user)
	var sending sync.WaitGroup
	var mu sync.Mutex // guards r and errs
	var errs error
	for client := range v.clients {
		cfg := userConfig
		if len(q.tokens) > 0 {
			cfg = rest.CopyConfig(userConfig)
			cfg.BearerToken = q.tokens[client]
		}
		connection, err := b.connection(cfg, q.version, client)
		if err != nil {
			return err
		}
		sending.Go(func() {
			delay := q.spread * time.Duration(client) / time.Duration(v.clients)
			if !clock.Sleep(ctx, delay) {
				return
			}
			for range v.perClient {
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
	took     time.Duration // until the last byte, with the refusals before
	bytes    int64         // size of the body as sent
	hit      bool          // it came from memory
	refusals int           // answers before it that refused the request
}

// sendUntilAnswered sends a request again while it is refused, as clients of Kubernetes do. A streaming list that ends too
// early counts as refused, since kube-apiserver ends streams that it cannot write in time.
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

// sendOnce sends a request and reads its answer. isRefused reports whether a client would try again.
func (q request) sendOnce(ctx context.Context, connection *http.Client, cfg *rest.Config) (a answer, isRefused bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // a streaming list would go on as a watch
	resp, err := q.open(ctx, connection, cfg)
	if err != nil {
		return a, q.stream, err // kube-apiserver may end a streaming list before its header
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
