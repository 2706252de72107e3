package main

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
)

// broadcast is the limit of watches: the least that a Go HTTP/2 server can do to tell each of its
// clients each frame of one watch of its own. All write the same bytes; a client is a place in the
// log.
type broadcast struct {
	mu     sync.Mutex
	frames [][]byte
	more   chan struct{} // closed and made anew with each frame
	failed error
}

// follow begins to read a watch of a server.
func (b *broadcast) follow(ctx context.Context, from server, path string) error {
	b.more = make(chan struct{})
	client, err := newHTTPClient(from, false)
	if err != nil {
		return err
	}
	req, err := load{Server: from, Path: path, Accept: acceptProtobuf}.request(ctx)
	if err != nil {
		return err
	}
	resp, err := client.Do(req) //nolint:bodyclose // whoever reads it closes it
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		return fmt.Errorf("GET %s: %s", path, resp.Status)
	}
	go func() {
		defer func() { _ = resp.Body.Close() }()
		in := bufio.NewReader(resp.Body)
		for {
			frame, err := nextFrame(in, nil)
			b.mu.Lock()
			if err == nil {
				b.frames = append(b.frames, slices.Clip(frame))
			}
			b.failed = err
			close(b.more)
			b.more = make(chan struct{})
			b.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return nil
}

// ServeHTTP implements http.Handler.
func (b *broadcast) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", acceptProtobuf+";stream=watch")
	flusher, _ := w.(http.Flusher)
	b.mu.Lock()
	told := len(b.frames)
	b.mu.Unlock()
	for {
		flusher.Flush()
		b.mu.Lock()
		fresh, more, failed := b.frames[told:], b.more, b.failed
		b.mu.Unlock()
		if len(fresh) == 0 {
			if failed != nil {
				return
			}
			select {
			case <-more:
				continue
			case <-r.Context().Done():
				return
			}
		}
		for _, frame := range fresh {
			if _, err := w.Write(frame); err != nil {
				return
			}
		}
		told += len(fresh)
	}
}
