package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/listproxy/listproxy/test/bench/speed/report"
)

// idleFor is how long processes are watched that nobody asks anything.
const idleFor = 3 * time.Second

// measureLists measures lists from memory beside the limit and kube-apiserver.
func measureLists(ctx context.Context, s settings, r *report.Report) (err error) {
	sc, err := openScene(ctx, s.pods, s.args, r.Log)
	defer func() { err = errors.Join(err, sc.close()) }()
	if err != nil {
		return err
	}
	// What is learnt from here on lies in the history of both.
	for _, accept := range []string{acceptJSON, acceptProtobuf} {
		if _, err := sc.warm(ctx, load{Path: list(anyVersion()), Accept: accept}); err != nil {
			return err
		}
	}
	st, err := sc.look(ctx, s.pods, s.page)
	if err != nil {
		return err
	}
	b := &bench{
		client: sc.client, contenders: sc.contenders(), rounds: s.rounds, requests: s.requests,
		bytes: int64(s.megabyte) * 1e6, clients: s.clients, log: r.Log,
	}
	rows := st.rows()
	sizes := make([]int64, len(rows))
	for i, row := range rows {
		if sizes[i], err = sc.prepare(ctx, row); err != nil {
			return err
		}
	}
	r.Log("%d requests prepared, the answers are the same", len(rows))
	if err := b.watchIdle(ctx, idleFor); err != nil {
		return err
	}
	lines, err := b.sideBySide(func() ([]row, error) {
		err := sc.refresh(ctx, &st)
		return st.rows(), err
	}, sc.load, sizes)
	if err != nil {
		return err
	}
	r.Say(fmt.Sprintf(listsIntroduction, s.pods, s.page))
	r.Draw("lists", "CPU of the server for a request", listsPlot(lines))
	r.Add(comparison("", lines))
	if err := sc.measureChanging(ctx, b, st, s, r); err != nil {
		return err
	}
	r.Add(startTable(sc.start, s.pods))
	return nil
}

const listsIntroduction = `
## Lists, beside kube-apiserver and a bare handler

%d pods, pages of %d. CPU is user and kernel time of the server's process for one request; times are
the client's. Both are medians of rounds in which each request went to all three servers in turn. The
limit is a bare Go HTTPS handler that writes the bytes that kube-apiserver sent, from memory with one
Write; for gzip it has them compressed already. Pages are asked for at an exact revision, and
everything else at resourceVersion=0 unless the row says otherwise. The size of listproxy's gzip is
compared with kube-apiserver's, which is gzip -1 of the whole. Compare ratios: a time of less than a
millisecond is mostly connection and headers.
`

// listsPlot draws the rows of HTTP/2.
func listsPlot(lines []line) string {
	var groups []report.Group
	for _, l := range lines {
		if l.http1 {
			continue
		}
		g := report.Group{Label: l.name + ", " + l.form()}
		for _, f := range l.of {
			g.Values = append(g.Values, float64(middle(f.cpu)))
		}
		groups = append(groups, g)
	}
	return report.Bars("CPU of the server for a request", []string{nameLimit, nameProxy, nameKube}, groups,
		func(v float64) string { return report.Millis(time.Duration(v)) })
}

// startTable says what a start took.
func startTable(s started, pods int) *report.Table {
	t := &report.Table{
		Caption: "A start of listproxy, with one representation loaded before it is ready.",
		Head:    []string{"pods", "until ready", "listproxy, CPU", "kube-apiserver, CPU"},
	}
	t.Add(strconv.Itoa(pods), report.Millis(s.ready), report.Millis(s.proxy), report.Millis(s.kube))
	return t
}
