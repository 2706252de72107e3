package main

import (
	"bytes"
	"context"
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

// limitCommand is the argument with which this program runs as the limit: the least that a proxy in Go can cost. The limit
// answers lists with stored bytes, writes what one watch of the upstream brings to each watch of the same target, and
// forwards with [httputil.ReverseProxy] and nothing else.
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

// serveLimit is the limit's main. It parses the flags of listproxy that it needs, and ignores the others.
func serveLimit(ctx context.Context, args []string) error {
	flags := pflag.NewFlagSet(limitCommand, pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	kubeconfig, certificates := flags.String("kubeconfig", "", ""), flags.String("cert-dir", "", "")
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
	clients, err := net.Listen("tcp", "127.0.0.1:0")
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
	fmt.Printf("msg=serving address=%s admin=%s\n", clients.Addr(), health.Addr()) // as in listproxy's log
	server := &http.Server{Handler: handler}                                       // #nosec G112 -- for this test alone
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.ServeTLS(clients, filepath.Join(*certificates, "tls.crt"), filepath.Join(*certificates, "tls.key")); ctx.Err() == nil {
		return err
	}
	return nil
}

// limit is the handler of [serveLimit]. It answers lists that name a revision or a token with the bytes that kube-apiserver
// sent the first time.
type limit struct {
	upstream *httputil.ReverseProxy
	stored   sync.Map // limitKey → *recorder

	mu      sync.Mutex
	watched map[limitKey]*fanOut
}

type limitKey struct{ target, accept, encoding string }

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
	return &limit{watched: make(map[limitKey]*fanOut), upstream: &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(base) },
		Transport: &http.Transport{TLSClientConfig: tls, Protocols: protocols, DisableCompression: true},
	}}, nil
}

// ServeHTTP implements [http.Handler].
func (l *limit) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !strings.Contains(r.URL.RawQuery, "resourceVersion=") && !strings.Contains(r.URL.RawQuery, "continue=") {
		l.upstream.ServeHTTP(w, r)
		return
	}
	key := limitKey{target: r.URL.RequestURI(), accept: r.Header.Get("Accept"), encoding: r.Header.Get("Accept-Encoding")}
	if query := r.URL.Query(); query.Has("watch") && !query.Has("sendInitialEvents") {
		l.join(key, w, r)
		return
	}
	if value, ok := l.stored.Load(key); ok {
		if stored, ok := value.(*recorder); ok {
			stored.replay(w)
		}
		return
	}
	recording := &recorder{ResponseWriter: w, code: http.StatusOK}
	defer func() {
		_ = recover() // ReverseProxy panics when the client ends a streaming list after its initial events
		if recording.code == http.StatusOK {
			recording.header = w.Header().Clone()
			l.stored.Store(key, recording)
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

// chunkBytes are written at a time, as by listproxy.
const chunkBytes = 64 << 10

// replay writes the copy.
func (r *recorder) replay(w http.ResponseWriter) {
	maps.Copy(w.Header(), r.header)
	w.Header().Del("Content-Length") // listproxy sends none either
	w.Header().Set("Cache-Status", "listproxy; hit; detail=any")
	for chunk := range slices.Chunk(r.body.Bytes(), chunkBytes) {
		if _, err := w.Write(chunk); err != nil {
			return // the client is gone
		}
	}
}

// join adds a client to the watches of a target, and writes events to it until it leaves. The first client's request
// opens the watch of the upstream.
func (l *limit) join(key limitKey, w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", key.accept+";stream=watch")
	w.Header().Set("Cache-Status", "listproxy; hit; detail=watch")
	_ = http.NewResponseController(w).Flush()
	written := make(chan []byte, watchBacklog)
	l.mu.Lock()
	watches, ok := l.watched[key]
	if !ok {
		watches = &fanOut{}
		l.watched[key] = watches
		upstream := r.Clone(context.WithoutCancel(r.Context()))
		go l.upstream.ServeHTTP(watches, upstream)
	}
	l.mu.Unlock()
	watches.add(written)
	for {
		select {
		case <-r.Context().Done():
			return
		case event := <-written:
			if _, err := w.Write(event); err != nil {
				return
			}
			_ = http.NewResponseController(w).Flush()
		}
	}
}

// watchBacklog is the number of writes for which a client of a [fanOut] may be behind before the others wait for it.
const watchBacklog = 1000

// fanOut is the response to the watch of the upstream. It passes each write on to all clients. None is ever removed, since the
// clients of a benchmark leave together, at its end.
type fanOut struct {
	header http.Header

	mu      sync.Mutex
	clients []chan<- []byte
}

func (f *fanOut) add(client chan<- []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.clients = append(f.clients, client)
}

// Header implements [http.ResponseWriter].
func (f *fanOut) Header() http.Header {
	if f.header == nil {
		f.header = make(http.Header)
	}
	return f.header
}

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
