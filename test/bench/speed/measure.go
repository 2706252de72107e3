package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/listproxy/listproxy/test/bench/speed/report"
	"github.com/listproxy/listproxy/test/harness/process"
)

// contender is a server that is measured.
type contender struct {
	name   string
	server server
	pid    int
	// idle is the part of a CPU that it uses while nobody asks it anything.
	idle float64
	hit  bool // answers must come from memory
	// share of the requests that it gets: a slow one needs fewer.
	share float64
}

// figures are what was measured of one request at one contender, a value for each round.
type figures struct {
	cpu  []time.Duration // of the server, a request
	wall []time.Duration // of the client, a request, the median
	size int64           // of a body as sent
	n    int             // requests altogether
}

func middle[T cmp.Ordered](values []T) T {
	var none T
	if len(values) == 0 {
		return none
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// line is what was measured of a row, in the order of the contenders.
type line struct {
	row
	of []figures
}

// bench measures contenders with one client.
type bench struct {
	client     *child
	contenders []contender
	rounds     int
	requests   int   // at most, of a row in a round at a contender
	bytes      int64 // that a row in a round at a contender may cost, as far as requests can be fewer
	clients    int   // that ask at a time
	log        func(format string, args ...any)
}

// ask carries out a load and fails where an answer was wrong.
func (b *bench) ask(l load) (outcome, error) {
	var o outcome
	if err := b.client.call(l, &o); err != nil {
		return o, err
	}
	if o.Error != "" {
		return o, errors.New(o.Error)
	}
	return o, nil
}

// costs carries out a load, and tells what each of some processes computes meanwhile.
func (b *bench) costs(l load, pids ...int) (o outcome, used []time.Duration, err error) {
	used, err = process.Used(func() (err error) {
		o, err = b.ask(l)
		return err
	}, pids...)
	return o, used, err
}

// watchIdle measures what contenders use while nobody asks them anything.
func (b *bench) watchIdle(ctx context.Context, last time.Duration) error {
	var pids []int
	for _, c := range b.contenders {
		pids = append(pids, c.pid)
	}
	begun := time.Now()
	used, err := process.Used(func() error { return pause(ctx, last) }, pids...)
	for i := range used {
		b.contenders[i].idle = used[i].Seconds() / time.Since(begun).Seconds()
	}
	return err
}

// measure sends a row's request to a contender n times and adds what it took to f.
func (b *bench) measure(c contender, l load, n int, f *figures) error {
	l.Server, l.Hit = c.server, c.hit
	l.Clients = min(b.clients, n)
	l.Each = n / l.Clients
	o, used, err := b.costs(l, c.pid)
	if err != nil {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	own := used[0] - time.Duration(c.idle*float64(o.Elapsed))
	f.cpu = append(f.cpu, max(0, own)/time.Duration(len(o.Times)))
	f.wall = append(f.wall, o.median())
	f.size = o.Size
	f.n += len(o.Times)
	return nil
}

// count says how many requests a contender gets in a round.
func (b *bench) count(c contender, size int64) int {
	n := int(c.share * float64(min(int64(b.requests), b.bytes/max(1, size))))
	return max(1, n-n%min(b.clients, max(1, n)))
}

// sideBySide measures rows round by round, and in each round each row at all contenders in turn,
// beginning with another one each time: a noisy machine hits all alike. now returns the requests as
// they are to be sent now.
func (b *bench) sideBySide(now func() ([]row, error), loads func(c contender, r row) load, sizes []int64) ([]line, error) {
	lines := make([]line, len(sizes))
	for i := range lines {
		lines[i].of = make([]figures, len(b.contenders))
	}
	for round := range b.rounds {
		begun := time.Now()
		for i := range sizes {
			rows, err := now()
			if err != nil {
				return nil, err
			}
			r, size := rows[i], sizes[i]
			lines[i].row = r
			for turn := range b.contenders {
				at := (turn + round + i) % len(b.contenders)
				c, f := b.contenders[at], &lines[i].of[at]
				if err := b.measure(c, loads(c, r), b.count(c, size), f); err != nil {
					return nil, fmt.Errorf("%s (%s): %w", r.name, r.form(), err)
				}
				if !r.gzip && max(f.size-size, size-f.size) > revisionDigits {
					return nil, fmt.Errorf("%s (%s): %s sent %d bytes, not %d", r.name, r.form(), c.name, f.size, size)
				}
			}
		}
		b.log("round %d of %d: %v", round+1, b.rounds, time.Since(begun).Round(time.Second))
	}
	return lines, nil
}

// revisionDigits is by how much answers of the same objects may differ in length: a revision, and
// a token that holds one, may have a digit more than those before.
const revisionDigits = 16

// fetched is a whole answer.
type fetched struct {
	status   string // Cache-Status
	kind     string // Content-Type
	encoding string // Content-Encoding
	sent     []byte
	plain    []byte
}

// fetch asks once, and unpacks the answer.
func fetch(ctx context.Context, l load) (fetched, error) {
	client, err := newHTTPClient(l.Server, l.HTTP1)
	if err != nil {
		return fetched{}, err
	}
	defer client.CloseIdleConnections()
	req, err := l.request(ctx)
	if err != nil {
		return fetched{}, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return fetched{}, err
	}
	defer resp.Body.Close()
	f := fetched{
		status: resp.Header.Get("Cache-Status"), kind: resp.Header.Get("Content-Type"),
		encoding: resp.Header.Get("Content-Encoding"),
	}
	if f.sent, err = io.ReadAll(resp.Body); err != nil {
		return f, err
	}
	if resp.StatusCode != http.StatusOK {
		return f, fmt.Errorf("GET %s: %s: %.200s", l.Path, resp.Status, f.sent)
	}
	f.plain = f.sent
	if f.encoding == "gzip" {
		unpacked, err := gzip.NewReader(bytes.NewReader(f.sent))
		if err != nil {
			return f, err
		}
		if f.plain, err = io.ReadAll(unpacked); err != nil {
			return f, err
		}
	}
	return f, nil
}

// pause waits, unless ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// comparison is the table of lines, whose contenders are the limit, listproxy and kube-apiserver.
func comparison(caption string, lines []line) *report.Table {
	t := &report.Table{Caption: caption, Head: []string{
		"pods", "form", "HTTP", "bytes", "limit, CPU", "listproxy", "kube-apiserver",
		"listproxy/limit", "kube-apiserver/listproxy", "limit, time", "listproxy", "kube-apiserver",
	}}
	for _, l := range lines {
		limit, proxy, kube := l.of[0], l.of[1], l.of[2]
		cpu := func(f figures) float64 { return float64(middle(f.cpu)) }
		sent := report.Size(proxy.size)
		if l.gzip {
			sent += fmt.Sprintf(" (%+.0f%%)", 100*(float64(proxy.size)/float64(kube.size)-1))
		}
		t.Add(l.name, l.form(), l.protocol(), sent,
			report.Millis(middle(limit.cpu)), report.Millis(middle(proxy.cpu)), report.Millis(middle(kube.cpu)),
			report.Ratio(cpu(proxy), cpu(limit)), report.Ratio(cpu(kube), cpu(proxy)),
			report.Millis(middle(limit.wall)), report.Millis(middle(proxy.wall)), report.Millis(middle(kube.wall)))
	}
	return t
}
