package main

import (
	"context"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/listproxy/listproxy/test/bench/speed/report"
)

// measureChanging measures lists between changes, and of the state before them.
func (s *scene) measureChanging(ctx context.Context, b *bench, st state, set settings, r *report.Report) error {
	all, err := s.kube.CoreV1().Pods("").List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	pods := all.Items
	before := st.revision
	whole := row{name: "all", path: list(anyVersion()), accept: acceptProtobuf, gzip: true}
	var lines []line
	for _, changes := range []int{1, 10, max(20, len(pods)/100)} {
		l := line{row: whole, of: make([]figures, len(b.contenders))}
		l.name = fmt.Sprintf("all, %d changed", changes)
		for round := range set.rounds {
			if err := s.change(ctx, pods, changes, fmt.Sprintf("%d-%d", changes, round)); err != nil {
				return err
			}
			if err := s.refresh(ctx, &st); err != nil {
				return err
			}
			for turn := range b.contenders {
				at := (turn + round) % len(b.contenders)
				if err := b.measure(b.contenders[at], s.load(b.contenders[at], whole), 1, &l.of[at]); err != nil {
					return fmt.Errorf("%s: %w", l.name, err)
				}
			}
		}
		lines = append(lines, l)
	}
	r.Add(comparison("One list after some pods have changed, spread over all pods, compared with the bytes from before.", lines))

	lines = nil
	for _, at := range []struct{ name, revision string }{{"before the changes", before}, {"newest", st.revision}} {
		for _, zipped := range []bool{false, true} {
			page := row{
				name: fmt.Sprintf("first %d, %s", st.page, at.name), path: list(exactly(at.revision, st.page)),
				accept: acceptProtobuf, gzip: zipped,
			}
			bytes, err := s.prepare(ctx, page)
			if err != nil {
				return err
			}
			measured, err := b.sideBySide(func() ([]row, error) { return []row{page}, nil }, s.load, []int64{bytes})
			if err != nil {
				return err
			}
			lines = append(lines, measured...)
		}
	}
	r.Add(comparison("Pages of an exact revision.", lines))
	return nil
}

// change changes an annotation of n pods, spread over all.
func (s *scene) change(ctx context.Context, pods []corev1.Pod, n int, value string) error {
	for i := range n {
		pod := pods[i*len(pods)/n]
		patch := []byte(`{"metadata":{"annotations":{"bench.listproxy.io/changed":` + strconv.Quote(value) + `}}}`)
		if _, err := s.kube.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return fmt.Errorf("change pod %s: %w", pod.Name, err)
		}
	}
	return nil
}
