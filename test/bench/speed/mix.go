package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/listproxy/listproxy/test/harness/poll"
)

// mix is what many clients ask for, each sort so often, spread evenly over a time.
type mix struct {
	Seconds int
	Jobs    []job
}

// job is one sort of request.
type job struct {
	Name   string
	Paths  []string // in turn
	Accept string
	Times  int
	// PerSecond is how often it is asked for in a mix.
	PerSecond float64
	// Walk: from page to page. Stream: a streaming list, read to its end. Patch: not a GET.
	Walk, Stream, Patch bool
}

// mixed is what came of a mix, by the names of jobs.
type mixed struct {
	Done map[string]int // answers; of a walk, its pages
	Hits map[string]int // of these from memory
}

// mixClients is over how many connections each job asks.
const mixClients = 4

// run does all jobs, and returns when all are done.
func (m *mix) run(ctx context.Context, to server) (mixed, error) {
	all := mixed{Done: map[string]int{}, Hits: map[string]int{}}
	var mu sync.Mutex
	var failed error
	var working sync.WaitGroup
	for _, j := range m.Jobs {
		for number := range mixClients {
			client, err := newHTTPClient(to, false)
			if err != nil {
				return all, err
			}
			every := time.Duration(m.Seconds) * time.Second * mixClients / time.Duration(max(1, j.Times))
			working.Go(func() {
				due := time.Now().Add(every * time.Duration(number) / mixClients)
				for i := number; i < j.Times && poll.Pause(ctx, time.Until(due)); i += mixClients {
					due = due.Add(every)
					done, hits, err := j.once(ctx, client, to, i)
					mu.Lock()
					all.Done[j.Name] += done
					all.Hits[j.Name] += hits
					if err != nil {
						failed = fmt.Errorf("%s: %w", j.Name, err)
					}
					mu.Unlock()
				}
			})
		}
	}
	working.Wait()
	return all, failed
}

// once does one of the requests.
func (j job) once(ctx context.Context, client *http.Client, to server, i int) (done, hits int, err error) {
	path := j.Paths[i%len(j.Paths)]
	for next := path; next != ""; {
		l := load{Server: to, Path: next, Accept: j.Accept}
		req, err := l.request(ctx)
		if err != nil {
			return done, hits, err
		}
		if j.Patch {
			req.Method = http.MethodPatch
			body := []byte(`{"metadata":{"annotations":{"bench.listproxy.io/at":"` + stamp(time.Now()) + `"}}}`)
			req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
			req.Header.Set("Content-Type", "application/merge-patch+json")
		}
		resp, err := client.Do(req)
		if err != nil {
			return done, hits, err
		}
		next, err = j.read(resp, path)
		_ = resp.Body.Close()
		if err != nil {
			return done, hits, err
		}
		done++
		if strings.HasPrefix(resp.Header.Get("Cache-Status"), "listproxy; hit") {
			hits++
		}
	}
	return done, hits, nil
}

// read reads an answer, and returns the path of the next page, if there is one.
func (j job) read(resp *http.Response, path string) (next string, err error) {
	switch {
	case resp.StatusCode != http.StatusOK:
		return "", errors.New(resp.Status)
	case j.Stream:
		in := bufio.NewReaderSize(resp.Body, 64<<10)
		for frame := []byte(nil); ; {
			switch frame, err = nextFrame(in, frame); {
			case errors.Is(err, io.EOF):
				return path, nil // kube-apiserver ends who reads too slowly, and is asked again
			case err != nil:
				return "", err
			}
			if bytes.HasPrefix(frame[4:], []byte("\n\x08BOOKMARK")) {
				return "", nil
			}
		}
	case !j.Walk:
		_, err = io.Copy(io.Discard, resp.Body)
		return "", err
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", err
	}
	head, _, _ := bytes.Cut(body, []byte(`,"items":`)) // nothing behind it is read
	var list struct {
		Metadata struct{ Continue string }
	}
	if err := json.Unmarshal(append(slices.Clip(head), '}'), &list); err != nil {
		return "", err
	}
	if list.Metadata.Continue == "" {
		return "", nil
	}
	base, _, _ := strings.Cut(path, "&continue=")
	return base + "&continue=" + url.QueryEscape(list.Metadata.Continue), nil
}
