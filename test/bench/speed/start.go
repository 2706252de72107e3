package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/listproxy/listproxy/test/harness/process"
)

// measureStart measures a start of listproxy before as many pods as a real kube-apiserver holds.
func measureStart(ctx context.Context, s settings, r *report) (err error) {
	sc, err := openScene(ctx, s.pods, s.args, r.log)
	defer func() { err = errors.Join(err, sc.close()) }()
	if err != nil {
		return err
	}
	resident, peak, err := process.Memory(sc.proxy.PID())
	if err != nil {
		return err
	}
	r.say(fmt.Sprintf("## A start\n\nlistproxy starts in front of a real kube-apiserver with %d pods, "+
		"and loads them, as JSON, with one streaming list before it is ready.", s.pods))
	t := &table{head: []string{"pods", "until ready", "listproxy, CPU", "kube-apiserver, CPU", "listproxy, memory", "at most"}}
	t.add(strconv.Itoa(s.pods), millis(sc.start.ready), millis(sc.start.proxy), millis(sc.start.kube), size(resident), size(peak))
	r.add(t)
	return nil
}
