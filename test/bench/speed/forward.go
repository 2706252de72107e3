package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/listproxy/listproxy/test/bench/speed/report"
	"github.com/listproxy/listproxy/test/controlplane"
)

const (
	// forwardPods is how many pods there are where only forwarding is measured.
	forwardPods = 200
	// eventPatience bounds the wait for an event.
	eventPatience = 30 * time.Second
)

// measureForward measures what listproxy adds to what it forwards.
func measureForward(ctx context.Context, s settings, r *report.Report) (err error) {
	sc, err := openScene(ctx, forwardPods, s.args, r.Log)
	defer func() { err = errors.Join(err, sc.close()) }()
	if err != nil {
		return err
	}
	r.Say("## Forwarding\n\nA small GET and an event of a watch, in turn directly at kube-apiserver and through listproxy." +
		" Added: the difference of the two medians, and of the two 99th percentiles.")
	if err := sc.gets(s, r); err != nil {
		return err
	}
	return sc.events(ctx, s, r)
}

// gets compares a small GET, over one connection and over some.
func (s *scene) gets(set settings, r *report.Report) error {
	t := &report.Table{Head: []string{
		"GET of a namespace", "HTTP", "directly, median", "99%", "through listproxy, median", "99%", "added, median", "99%", "listproxy, CPU",
	}}
	b := &bench{client: s.client}
	for _, http1 := range []bool{false, true} {
		for _, clients := range []int{1, set.clients} {
			var direct, proxied []time.Duration
			var used time.Duration
			l := load{
				Path: "/api/v1/namespaces/default", Accept: acceptProtobuf, Gzip: true, HTTP1: http1,
				Clients: clients, Each: max(1, set.requests/clients),
			}
			for _, to := range []server{s.direct, s.proxied} { // connections and code paths
				l.Server = to
				if _, err := b.ask(l); err != nil {
					return err
				}
			}
			for range set.rounds {
				l.Server = s.direct
				o, err := b.ask(l)
				if err != nil {
					return err
				}
				direct = append(direct, o.Times...)
				l.Server = s.proxied
				o, took, err := b.costs(l, s.proxy.PID())
				if err != nil {
					return err
				}
				proxied, used = append(proxied, o.Times...), used+took[0]
			}
			t.Add(append([]string{fmt.Sprintf("%d at a time", clients), row{http1: http1}.protocol()},
				append(latencies(direct, proxied), report.Millis(used/time.Duration(len(proxied))))...)...)
		}
	}
	r.Add(t)
	return nil
}

// latencies are the cells about what was asked directly and what through listproxy.
func latencies(direct, proxied []time.Duration) []string {
	slices.Sort(direct)
	slices.Sort(proxied)
	cells := make([]string, 0, 6)
	for _, of := range [][]time.Duration{direct, proxied} {
		cells = append(cells, report.Millis(quantile(of, 0.5)), report.Millis(quantile(of, 0.99)))
	}
	return append(cells, report.Millis(quantile(proxied, 0.5)-quantile(direct, 0.5)),
		report.Millis(quantile(proxied, 0.99)-quantile(direct, 0.99)))
}

// events compares when an event arrives, from when its change was sent.
func (s *scene) events(ctx context.Context, set settings, r *report.Report) error {
	proxied, err := kubernetes.NewForConfig(s.proxy.RESTConfig(s.cp.RESTConfig(controlplane.Admin)))
	if err != nil {
		return err
	}
	changed := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "changed"}}
	direct := s.kube.CoreV1().ConfigMaps(controlplane.TeamA)
	created, err := direct.Create(ctx, changed, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create a config map: %w", err)
	}
	options := metav1.ListOptions{ResourceVersion: created.ResourceVersion}
	var watches [2]watch.Interface
	for i, from := range []kubernetes.Interface{s.kube, proxied} {
		if watches[i], err = from.CoreV1().ConfigMaps(controlplane.TeamA).Watch(ctx, options); err != nil {
			return fmt.Errorf("watch config maps: %w", err)
		}
		defer watches[i].Stop()
	}
	var took [2][]time.Duration
	for n := range set.rounds * set.requests {
		begun := time.Now()
		patch := []byte(`{"data":{"n":"` + strconv.Itoa(n) + `"}}`)
		sent := make(chan error, 1)
		go func() {
			_, err := direct.Patch(ctx, changed.Name, types.MergePatchType, patch, metav1.PatchOptions{})
			sent <- err
		}()
		arrived, err := both(ctx, watches, begun)
		if err = errors.Join(<-sent, err); err != nil {
			return fmt.Errorf("change a config map: %w", err)
		}
		for i := range took {
			took[i] = append(took[i], arrived[i])
		}
	}
	t := &report.Table{Head: []string{"event of a watch", "directly, median", "99%", "through listproxy, median", "99%", "added, median", "99%"}}
	t.Add(append([]string{"from sending the change"}, latencies(took[0], took[1])...)...)
	r.Add(t)
	return nil
}

// both waits for the next event of both watches, and says how long after begun each came.
func both(ctx context.Context, watches [2]watch.Interface, begun time.Time) (arrived [2]time.Duration, err error) {
	patience := time.NewTimer(eventPatience)
	defer patience.Stop()
	from := [2]<-chan watch.Event{watches[0].ResultChan(), watches[1].ResultChan()}
	for range from {
		var ok bool
		select {
		case _, ok = <-from[0]:
			arrived[0], from[0] = time.Since(begun), nil
		case _, ok = <-from[1]:
			arrived[1], from[1] = time.Since(begun), nil
		case <-patience.C:
			return arrived, fmt.Errorf("no event within %v", eventPatience)
		case <-ctx.Done():
			return arrived, ctx.Err()
		}
		if !ok {
			return arrived, errors.New("a watch has ended")
		}
	}
	return arrived, nil
}
