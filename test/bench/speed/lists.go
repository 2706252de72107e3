package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// idleFor is how long processes are watched that nobody asks anything.
const idleFor = 3 * time.Second

// measureLists measures lists from memory beside the limit and kube-apiserver.
func measureLists(ctx context.Context, s settings, r *report) (err error) {
	sc, err := openScene(ctx, s.pods, s.args, r.log)
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
		bytes: int64(s.megabyte) * 1e6, clients: s.clients, log: r.log,
	}
	rows := st.rows()
	sizes := make([]int64, len(rows))
	for i, row := range rows {
		if sizes[i], err = sc.prepare(ctx, row); err != nil {
			return err
		}
		r.log("ready: %s (%s, HTTP/%s), %s", row.name, row.form(), row.protocol(), size(sizes[i]))
	}
	r.log("%d requests prepared, the answers are the same", len(rows))
	if err := b.watchIdle(ctx, idleFor); err != nil {
		return err
	}
	lines, err := b.sideBySide(rows, sc.load, sizes)
	if err != nil {
		return err
	}
	r.add(comparison(fmt.Sprintf("%d pods. Nothing changes.", s.pods), lines))
	return nil
}
