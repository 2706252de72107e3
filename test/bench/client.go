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

// request is what is measured: a GET.
type request struct {
	name string
	// path has the query. newestRevision and middlePage in it are replaced before it is sent.
	path, accept string
	gzip, http1  bool
	// stream: a streaming list, which is read to the end of its initial events.
	stream bool
	// memory: listproxy must answer it from memory.
	memory bool
	// changed: one of a hundred pods is changed before each time that it is sent.
	changed bool
	// clients is how many ask at a time, each over a connection of its own; 0: one.
	clients int
	// user of the control plane; "": the admin.
	user string
	// tokens, if there are any, are the clients' own.
	tokens []string
	// within is over how long the clients begin; 0: at once.
	within time.Duration
}

const (
	userAgent = "bench/v0.0.0 (linux/amd64) kubernetes/$Format"
	// newestRevision in a path stands for kube-apiserver's newest revision, and middlePage for the
	// token with which the page behind half of the pods continues.
	newestRevision, middlePage = "NEWEST", "MIDDLE"
	// mostConnections is over how many connections a crowd asks.
	mostConnections = 100
	// mostRefusals is how often a client comes again that was refused, after each time comeAgain.
	mostRefusals = 100
	comeAgain    = time.Second
)

// connection returns one of the connections to a server.
func (b *bench) connection(cfg *rest.Config, http1 bool, number int) (over *http.Client, err error) {
	key := fmt.Sprint(cfg.Host, cfg.BearerToken, http1, number%mostConnections)
	if b.connections[key] == nil {
		b.connections[key], err = newConnection(cfg, http1)
	}
	return b.connections[key], err
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
		DisableCompression: true, // what was sent is counted
	}}, nil
}

// ask has so many clients send a request so often each, and adds what came of it to a result.
func (b *bench) ask(ctx context.Context, at side, q request, clients, each int, r *result) error {
	cfg := b.config(at, q.user)
	var all sync.WaitGroup
	var mu sync.Mutex
	var failed error
	for number := range clients {
		cfg := cfg
		if len(q.tokens) > 0 {
			cfg = rest.CopyConfig(cfg)
			cfg.BearerToken = q.tokens[number]
		}
		over, err := b.connection(cfg, q.http1, number)
		if err != nil {
			return err
		}
		all.Go(func() {
			if q.within > 0 && !clock.Sleep(ctx, q.within*time.Duration(number)/time.Duration(clients)) {
				return
			}
			for range each {
				one, err := q.untilAnswered(ctx, over, cfg)
				mu.Lock()
				r.take(one)
				failed = errors.Join(failed, err)
				mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	all.Wait()
	if failed != nil {
		return fmt.Errorf("GET %s: %.500w", q.path, failed)
	}
	return nil
}

// answer is what came of one request.
type answer struct {
	took    time.Duration // to the last byte, with all refusals before
	bytes   int64         // of the body as sent
	hit     bool
	refused int // times
}

// untilAnswered sends a request again while it is refused, as clients of Kubernetes do. A streaming
// list that ends too early counts as refused: kube-apiserver ends those that it cannot write in time.
func (q request) untilAnswered(ctx context.Context, over *http.Client, cfg *rest.Config) (a answer, err error) {
	begun := time.Now()
	for refused := 0; ; refused++ {
		var again bool
		a, again, err = q.once(ctx, over, cfg)
		a.refused, a.took = refused, time.Since(begun)
		if !again || refused == mostRefusals || !clock.Sleep(ctx, comeAgain) {
			return a, err
		}
	}
}

func (q request) once(ctx context.Context, over *http.Client, cfg *rest.Config) (a answer, again bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // of a watch that would go on
	resp, err := q.open(ctx, over, cfg)
	if err != nil {
		return a, q.stream, err
	}
	defer resp.Body.Close()
	a.hit = ask.FromMemory(resp.Header)
	counted := &counting{from: resp.Body}
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

// open sends the request.
func (q request) open(ctx context.Context, over *http.Client, cfg *rest.Config) (*http.Response, error) {
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
	return over.Do(req)
}

// counting counts what is read.
type counting struct {
	from io.Reader
	n    int64
}

// Read implements [io.Reader].
func (c *counting) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	c.n += int64(n)
	return n, err
}
