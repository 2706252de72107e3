package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// written is an object that was created through listproxy.
type written struct{ name, revision string }

// writeAndWatch opens a watch at both, creates a pod through listproxy, and sees it in both.
func (s *scene) writeAndWatch(ctx context.Context, r *report) (written, error) {
	ctx, cancel := context.WithCancel(ctx) // ends the watches
	defer cancel()
	const namespace = "shop"
	query := "?watch=true&resourceVersion=" + s.newest(ctx, namespace)
	direct, err := openWatch(ctx, s.admin.direct, podsIn(namespace)+query)
	if err != nil {
		return written{}, err
	}
	proxied, err := openWatch(ctx, s.admin.proxied, podsIn(namespace)+query)
	if err != nil {
		return written{}, err
	}

	// One write by each way; every watch sees both.
	begun := time.Now()
	first, err := s.admin.direct.post(ctx, podsIn(namespace), greeting("hello-kube-apiserver"))
	if err != nil {
		return written{}, err
	}
	theirs, err := direct.next(begun)
	if err != nil {
		return written{}, err
	}
	if _, err := proxied.next(begun); err != nil { // the first write
		return written{}, err
	}
	begun = time.Now()
	second, err := s.admin.proxied.post(ctx, podsIn(namespace), greeting("hello-listproxy"))
	if err != nil {
		return written{}, err
	}
	ours, err := proxied.next(begun)
	if err != nil {
		return written{}, err
	}
	check, err := direct.next(begun) // the second write, as kube-apiserver tells it
	if err != nil {
		return written{}, err
	}

	var pod corev1.Pod
	if err := json.Unmarshal(second.Body, &pod); err != nil {
		return written{}, fmt.Errorf("decode the pod: %w", err)
	}
	stored, err := s.admin.direct.Get(ctx, podsIn(namespace)+"/"+pod.Name)
	if err != nil {
		return written{}, err
	}
	r.add(row{
		what: "a pod is created", items: 1, pages: 1, bytes: second.wire, direct: first.took, proxied: second.took,
		same: bytes.Equal(stored.Body, second.Body), statuses: []string{second.Source()},
	})
	r.add(row{
		what: "a watch sees it", items: 1, pages: 1, bytes: len(ours.line), direct: theirs.took, proxied: ours.took,
		same: bytes.Equal(check.line, ours.line), statuses: []string{proxied.cacheStatus},
	})
	return written{name: pod.Name, revision: pod.ResourceVersion}, nil
}

// newest returns the revision of kube-apiserver's newest list of a namespace.
func (s *scene) newest(ctx context.Context, namespace string) string {
	a, err := s.admin.direct.Get(ctx, podsIn(namespace)+"?limit=1")
	if err != nil {
		return "0" // the watch then begins with all there is, and is seen to differ
	}
	p, err := readPage(a.Body)
	if err != nil {
		return "0" // as above
	}
	return p.ResourceVersion
}

func greeting(name string) *corev1.Pod {
	return &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "hello", Image: "registry.example.com/hello:1"}}},
	}
}

// watching is an open watch.
type watching struct {
	lines       *bufio.Reader
	cacheStatus string
}

// event is a line of a watch, and how long after something it came.
type event struct {
	line []byte
	took time.Duration
}

// openWatch returns when the watch has begun. It ends with ctx.
func openWatch(ctx context.Context, c client, path string) (*watching, error) {
	resp, err := c.With("Accept-Encoding", "identity").Open(ctx, http.MethodGet, path, nil)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { _ = resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("watch %s: HTTP %d", path, resp.StatusCode)
	}
	return &watching{lines: bufio.NewReader(resp.Body), cacheStatus: resp.Header.Get("Cache-Status")}, nil
}

// next waits for an event.
func (w *watching) next(since time.Time) (event, error) {
	line, err := w.lines.ReadBytes('\n')
	if err != nil {
		return event{}, fmt.Errorf("read a watch: %w", err)
	}
	return event{line: line, took: time.Since(since)}, nil
}
