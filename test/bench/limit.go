package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/listproxy/listproxy/test/controlplane"
)

// limitCommand is the argument that makes this program run as the limit ([limit]), and not measure anything.
const limitCommand = "serve-limit"

// limitName is the name of the limit's side.
const limitName = "limit"

// addLimit starts this program again, as the limit, and adds it to sides.
func (b *bench) addLimit(ctx context.Context, sides []side) ([]side, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p, err := b.start(ctx, self, b.cp.RESTConfig(controlplane.Feed), limitCommand)
	return append(sides, side{name: limitName, proxy: p}), err
}

// serveLimit is the main function of the limit. It parses the flags of listproxy that it needs, and ignores the others.
func serveLimit(ctx context.Context, args []string) error {
	flags := pflag.NewFlagSet(limitCommand, pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	kubeconfig, certDir := flags.String("kubeconfig", "", ""), flags.String("cert-dir", "", "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	handler, err := newLimit(cfg)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	health, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go func() {
		_ = http.Serve(health, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})) // #nosec G114 -- for this test alone
	}()
	fmt.Printf("msg=serving address=%s admin=%s\n", listener.Addr(), health.Addr()) // harness.StartProxy waits for this line of a log
	server := &http.Server{Handler: handler}                                        // #nosec G112 -- for this test alone
	context.AfterFunc(ctx, func() { _ = server.Close() })
	err = server.ServeTLS(listener, filepath.Join(*certDir, "tls.crt"), filepath.Join(*certDir, "tls.key"))
	if errors.Is(err, http.ErrServerClosed) {
		return nil // ctx has ended
	}
	return err
}

// limit is the least that a proxy in Go can cost. It forwards requests that name no revision and no token, with
// [httputil.ReverseProxy] alone. It answers other lists with stored bytes, and passes the events of one upstream watch on to
// all watches for the same key.
type limit struct {
	upstream *httputil.ReverseProxy

	mu      sync.Mutex
	stored  map[limitKey]*recorder // the first answer to each list
	fanOuts map[limitKey]*fanOut
}

// limitKey identifies an answer: two requests with the same key get the same bytes.
type limitKey struct{ uri, accept, encoding string }

// newLimit returns a limit in front of the server of a configuration. Each client sends its own token.
func newLimit(cfg *rest.Config) (*limit, error) {
	base, err := url.Parse(cfg.Host)
	if err != nil {
		return nil, err
	}
	tls, err := rest.TLSConfigFor(rest.AnonymousClientConfig(cfg))
	if err != nil {
		return nil, err
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	upstream := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(base) },
		Transport: &http.Transport{TLSClientConfig: tls, Protocols: protocols, DisableCompression: true},
	}
	return &limit{upstream: upstream, stored: map[limitKey]*recorder{}, fanOuts: map[limitKey]*fanOut{}}, nil
}

// ServeHTTP implements [http.Handler].
func (l *limit) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	namesState := strings.Contains(r.URL.RawQuery, "resourceVersion=") || strings.Contains(r.URL.RawQuery, "continue=")
	if !namesState {
		l.upstream.ServeHTTP(w, r)
		return
	}
	key := limitKey{uri: r.URL.RequestURI(), accept: r.Header.Get("Accept"), encoding: r.Header.Get("Accept-Encoding")}
	query := r.URL.Query()
	if query.Has("watch") && !query.Has("sendInitialEvents") {
		l.serveWatch(key, w, r)
		return
	}
	l.serveList(key, w, r)
}

// serveList answers a list with stored bytes. The first list for a key is forwarded, and its answer is stored.
func (l *limit) serveList(key limitKey, w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	stored := l.stored[key]
	l.mu.Unlock()
	if stored != nil {
		stored.replay(w)
		return
	}
	recording := &recorder{ResponseWriter: w, code: http.StatusOK}
	defer func() {
		// A client closes a streaming list after its initial events, and ReverseProxy then panics. By then all of them are
		// recorded.
		_ = recover()
		if recording.code == http.StatusOK {
			recording.header = w.Header().Clone()
			l.mu.Lock()
			defer l.mu.Unlock()
			l.stored[key] = recording
		}
	}()
	l.upstream.ServeHTTP(recording, r)
}

// recorder writes a response and keeps a copy.
type recorder struct {
	http.ResponseWriter
	code   int
	header http.Header
	body   bytes.Buffer
}

// WriteHeader implements [http.ResponseWriter].
func (r *recorder) WriteHeader(code int) {
	r.code = code
	r.ResponseWriter.WriteHeader(code)
}

// Write implements [http.ResponseWriter].
func (r *recorder) Write(p []byte) (int, error) {
	r.body.Write(p)
	return r.ResponseWriter.Write(p)
}

// Unwrap lets [http.ResponseController] flush.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// chunkBytes is the size of a write, as it is in listproxy.
const chunkBytes = 64 << 10

// replay writes the copy to another client.
func (r *recorder) replay(w http.ResponseWriter) {
	maps.Copy(w.Header(), r.header)
	w.Header().Del("Content-Length") // listproxy does not send this header
	w.Header().Set("Cache-Status", "listproxy; hit; detail=any")
	for chunk := range slices.Chunk(r.body.Bytes(), chunkBytes) {
		if _, err := w.Write(chunk); err != nil {
			return // the client is gone
		}
	}
}

// serveWatch writes the events of a fan-out to a client until the client leaves.
func (l *limit) serveWatch(key limitKey, w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", key.accept+";stream=watch")
	w.Header().Set("Cache-Status", "listproxy; hit; detail=watch")
	_ = http.NewResponseController(w).Flush()
	events := make(chan []byte, watchBacklog)
	l.fanOut(key, r).add(events)
	for {
		select {
		case <-r.Context().Done():
			return
		case event := <-events:
			if _, err := w.Write(event); err != nil {
				return
			}
			_ = http.NewResponseController(w).Flush()
		}
	}
}

// fanOut returns the fan-out of a key. The first request for the key creates it, and opens its watch of the upstream.
func (l *limit) fanOut(key limitKey, r *http.Request) *fanOut {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.fanOuts[key]
	if f == nil {
		f = &fanOut{header: http.Header{}}
		l.fanOuts[key] = f
		upstreamRequest := r.Clone(context.WithoutCancel(r.Context()))
		go l.upstream.ServeHTTP(f, upstreamRequest)
	}
	return f
}

// watchBacklog is the number of events that may wait for a slow client before all other clients wait for it, too.
const watchBacklog = 1000

// fanOut is the response to a watch of the upstream. It passes each write, which is an event, on to all clients. It removes no
// client, since the clients of a benchmark leave together, at its end.
type fanOut struct {
	header http.Header

	mu      sync.Mutex
	clients []chan<- []byte
}

// add adds a client, which gets all later events.
func (f *fanOut) add(client chan<- []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.clients = append(f.clients, client)
}

// Header implements [http.ResponseWriter].
func (f *fanOut) Header() http.Header { return f.header }

// WriteHeader implements [http.ResponseWriter].
func (f *fanOut) WriteHeader(int) {}

// Flush implements [http.Flusher].
func (f *fanOut) Flush() {}

// Write implements [http.ResponseWriter].
func (f *fanOut) Write(p []byte) (int, error) {
	event := bytes.Clone(p)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, client := range f.clients {
		client <- event
	}
	return len(p), nil
}
