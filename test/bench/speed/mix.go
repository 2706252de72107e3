package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
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
	// Walk: from page to page. Stream: a streaming list, read to its end. Patch: not a GET. Report: a
	// kubelet's report of its node's status. Renew: a node's Lease is renewed, Paths does not count.
	Walk, Stream, Patch, Report, Renew bool
	// Gzip: what Go clients ask for who were not told otherwise.
	Gzip bool
	// Forwarded: kube-apiserver alone can answer it.
	Forwarded bool
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
		var nodes kubelets
		if j.Renew {
			var err error
			if nodes, err = kubeletsAt(ctx, to); err != nil {
				return all, err
			}
		}
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
					var done, hits int
					var err error
					if j.Renew {
						done, err = 1, nodes.renew(ctx)
					} else {
						done, hits, err = j.once(ctx, client, to, i)
					}
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
		l := load{Server: to, Path: next, Accept: j.Accept, Gzip: j.Gzip}
		req, err := l.request(ctx)
		if err != nil {
			return done, hits, err
		}
		if kind, body := j.change(time.Now()); body != "" {
			req.Method = http.MethodPatch
			req.Body, req.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
			req.Header.Set("Content-Type", kind)
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

// change is what a write sends, and of which kind; empty if it is none.
func (j job) change(now time.Time) (kind, body string) {
	switch {
	case j.Patch:
		return "application/merge-patch+json", `{"metadata":{"annotations":{"bench.listproxy.io/at":"` + stamp(now) + `"}}}`
	case j.Report:
		conditions := []string{"Ready", "MemoryPressure", "DiskPressure", "PIDPressure"}
		for i, name := range conditions {
			conditions[i] = fmt.Sprintf(`{"type":%q,"status":"Unknown","lastHeartbeatTime":%q}`, name, now.UTC().Format(time.RFC3339))
		}
		return "application/strategic-merge-patch+json", `{"status":{"conditions":[` + strings.Join(conditions, ",") + `]}}`
	}
	return "", ""
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
	plain := io.Reader(resp.Body)
	if resp.Header.Get("Content-Encoding") == "gzip" {
		if plain, err = gzip.NewReader(resp.Body); err != nil {
			return "", err
		}
	}
	body, err := io.ReadAll(plain)
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
