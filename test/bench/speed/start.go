package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/listproxy/listproxy/test/bench/speed/report"
	"github.com/listproxy/listproxy/test/harness/process"
)

// measureStart measures a start of listproxy before as many pods as a real kube-apiserver holds.
func measureStart(ctx context.Context, s settings, r *report.Report) (err error) {
	sc, err := openScene(ctx, s.pods, s.args, r.Log)
	defer func() { err = errors.Join(err, sc.close()) }()
	if err != nil {
		return err
	}
	resident, peak, err := process.Memory(sc.proxy.PID())
	if err != nil {
		return err
	}
	r.Say(fmt.Sprintf("## A start\n\nlistproxy starts in front of a real kube-apiserver with %d pods, "+
		"and loads them, as JSON, with one streaming list before it is ready.", s.pods))
	t := &report.Table{Head: []string{"pods", "until ready", "listproxy, CPU", "kube-apiserver, CPU", "listproxy, memory", "at most"}}
	t.Add(strconv.Itoa(s.pods), report.Millis(sc.start.ready), report.Millis(sc.start.proxy), report.Millis(sc.start.kube),
		report.Size(resident), report.Size(peak))
	r.Add(t)
	return nil
}
