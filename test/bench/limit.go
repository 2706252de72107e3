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

// limitCommand is the argument with which this program is what listproxy is compared with.
const limitCommand = "serve-limit"

// limitName is the name of its side.
const limitName = "limit"

// withLimit adds to sides the least that a proxy in Go can cost: a process that answers lists with stored bytes,
// and forwards with [httputil.ReverseProxy] and nothing else.
func (b *bench) withLimit(ctx context.Context, sides []side) ([]side, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p, err := b.start(ctx, self, b.cp.RESTConfig(controlplane.Feed), limitCommand)
	return append(sides, side{limitName, p}), err
}

// serveLimit is that process. It understands those of listproxy's flags that it needs, and ignores the others.
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
	fmt.Printf("msg=serving address=%s admin=%s\n", clients.Addr(), health.Addr()) // as listproxy
	server := &http.Server{Handler: handler}                                       // #nosec G112 -- for this test alone
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.ServeTLS(clients, filepath.Join(*certificates, "tls.crt"), filepath.Join(*certificates, "tls.key")); ctx.Err() == nil {
		return err
	}
	return nil
}

// limit answers what could come from memory with the bytes that kube-apiserver sent the first time.
type limit struct {
	upstream *httputil.ReverseProxy
	stored   sync.Map // of limitKey to *recorded
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
	return &limit{upstream: &httputil.ReverseProxy{
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
	if stored, ok := l.stored.Load(key); ok {
		if answer, ok := stored.(*recorded); ok {
			answer.write(w)
		}
		return
	}
	recording := &recorded{ResponseWriter: w, code: http.StatusOK}
	defer func() {
		_ = recover() // ReverseProxy panics when the client has read a streaming list to its end
		if recording.code == http.StatusOK {
			recording.header = w.Header().Clone()
			l.stored.Store(key, recording)
		}
	}()
	l.upstream.ServeHTTP(recording, r)
}

// recorded is an answer that is kept while it is written.
type recorded struct {
	http.ResponseWriter
	code   int
	header http.Header
	body   bytes.Buffer
}

// WriteHeader implements [http.ResponseWriter].
func (a *recorded) WriteHeader(code int) {
	a.code = code
	a.ResponseWriter.WriteHeader(code)
}

// Write implements [http.ResponseWriter].
func (a *recorded) Write(p []byte) (int, error) {
	a.body.Write(p)
	return a.ResponseWriter.Write(p)
}

// Unwrap lets [http.ResponseController] flush.
func (a *recorded) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// writePiece is how many bytes are written at a time, as by listproxy.
const writePiece = 64 << 10

// write answers with what was kept.
func (a *recorded) write(w http.ResponseWriter) {
	maps.Copy(w.Header(), a.header)
	w.Header().Del("Content-Length") // as from memory
	w.Header().Set("Cache-Status", "listproxy; hit; detail=any")
	for piece := range slices.Chunk(a.body.Bytes(), writePiece) {
		if _, err := w.Write(piece); err != nil {
			return // the client is gone
		}
	}
}
