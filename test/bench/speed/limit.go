package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/pprof"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/util/cert"
)

// bare is the limit: the least that a Go HTTPS server can do to answer with these bytes. It finds
// them in a map and writes them with one Write.
type bare struct {
	mu     sync.RWMutex
	bodies map[string]stored
	watch  broadcast
}

// stored is an answer. With a server, it is each frame of its watch of that path.
type stored struct {
	Path, Type, Encoding string
	Body                 []byte
	Watch                *server
}

// bareAddress is what the limit answers to its first order, which is empty.
type bareAddress struct {
	Server server
	Error  string
}

// ServeHTTP implements http.Handler.
func (b *bare) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == heapPath {
		pprof.Handler("heap").ServeHTTP(w, r)
		return
	}
	b.mu.RLock()
	s, ok := b.bodies[r.URL.Path]
	b.mu.RUnlock()
	if !ok {
		http.NotFound(w, r)
		return
	}
	if s.Watch != nil {
		b.watch.ServeHTTP(w, r)
		return
	}
	w.Header().Set("Content-Type", s.Type)
	if s.Encoding != "" {
		w.Header().Set("Content-Encoding", s.Encoding)
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(s.Body)))
	_, _ = w.Write(s.Body)
}

// runLimit is the role of the limit. Each order is an answer to keep.
func runLimit(ctx context.Context, in io.Reader, out io.Writer) error {
	certPEM, keyPEM, err := cert.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		return fmt.Errorf("make a certificate: %w", err)
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return fmt.Errorf("make a certificate: %w", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	b := &bare{bodies: map[string]stored{}}
	web := &http.Server{
		Handler:   b,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
		ErrorLog:  log.New(io.Discard, "", 0),

		ReadHeaderTimeout: time.Minute,
	}
	defer func() { _ = web.Close() }()
	ended := make(chan error, 1)
	go func() { ended <- web.ServeTLS(listener, "", "") }()
	address := bareAddress{Server: server{URL: "https://" + listener.Addr().String(), CA: certPEM}}
	err = obey(ctx, in, out, func(ctx context.Context, s stored) bareAddress {
		if s.Watch != nil {
			if err := b.watch.follow(ctx, *s.Watch, s.Path); err != nil {
				return bareAddress{Error: err.Error()}
			}
			s.Path, _, _ = strings.Cut(s.Path, "?")
		}
		if s.Path != "" {
			b.mu.Lock()
			b.bodies[s.Path] = s
			b.mu.Unlock()
		}
		return address
	})
	select {
	case failed := <-ended:
		return errors.Join(err, failed)
	default:
		return err
	}
}
