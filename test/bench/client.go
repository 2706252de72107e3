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

// request is a GET that is measured at several sides: at kube-apiserver and at listproxies.
type request struct {
	name        string // in tables
	path        string // with the query; [bench.resolve] replaces newestRevision and middlePage
	accept      string // the Accept header
	gzip        bool   // the answer may be compressed
	version     httpVersion
	stream      bool          // it is a streaming list, and is read up to the end of its initial events
	mustHit     bool          // listproxy must answer from memory
	changesPods bool          // every hundredth pod is changed before each sending
	clients     int           // how many clients send it at the same time; 0 is one
	user        string        // of the control plane; "" is the admin
	tokens      []string      // one for each client, in place of the user's; nil: all have the user's
	spread      time.Duration // the time over which the clients begin one after the other; 0: all begin at once
}

// httpVersion is the version of HTTP of a connection.
type httpVersion int

const (
	http2 httpVersion = iota
	http1
)

// volume is the number of clients that send a request, and the number of times that each client sends it. A client waits for
// the answer before it sends the request again.
type volume struct{ clients, perClient int }

// once is one request of one client.
var once = volume{clients: 1, perClient: 1}

const (
	// userAgent has the form of client-go's default.
	userAgent = "bench/v0.0.0 (linux/amd64) kubernetes/$Format"
	// newestRevision stands for kube-apiserver's newest revision in a request's path.
	newestRevision = "NEWEST"
	// middlePage stands for the token that continues after half of the pods.
	middlePage = "MIDDLE"
	// maxConnections is the largest number of connections to a server. With 250 clients, clients 0, 100 and 200 share one.
	maxConnections = 100
	// maxRefusals is the number of times that a client sends a refused request again.
	maxRefusals = 100
	// retryInterval is the time between a refusal and the next try.
	retryInterval = time.Second
)

// connection returns the connection of a client to a server, and makes it if there is none yet.
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

// send has clients send a request to a side, and adds the answers to r, a row of a table.
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
		return fmt.Errorf("GET %s: %.500w", q.path, errs) // up to 500 characters, since a crowd may have as many errors as clients
	}
	return nil
}

// answer is what one request got.
type answer struct {
	took     time.Duration // from the first try to the last byte
	bytes    int64         // size of the body as sent
	hit      bool          // it came from memory
	refusals int           // the number of tries before that were refused
}

// sendUntilAnswered sends a request, and sends it again while it is refused, as clients of Kubernetes do.
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

// sendOnce sends a request and reads its answer. isRefused reports whether a client would try again: after a 429, and after a
// streaming list that ended too early. A busy kube-apiserver ends streams that it cannot write in time, some even before the
// header.
func (q request) sendOnce(ctx context.Context, connection *http.Client, cfg *rest.Config) (a answer, isRefused bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // a streaming list would go on as a watch
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
