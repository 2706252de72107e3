package main

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/listproxy/listproxy/test/harness/workload"
)

const (
	// formsPods is how many pods there are, and formsRequests how often each form is asked for in a
	// round at most.
	formsPods     = 1000
	formsRequests = 10
	// acceptMetadata is what metadata clients ask for.
	acceptMetadata = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
)

// ofAllForms are lists of the same pods in the forms in which clients ask for them.
func (s *newestScene) ofAllForms(set settings, busy bool) newestLists {
	sides := slices.DeleteFunc(s.sides(), func(side newestSide) bool { return side.name == sideAlways })
	of := newestLists{
		caption: fmt.Sprintf("Lists of the newest state of %d pods, in other forms. One of them is written 47 times a second (busy), or another resource (quiet).", formsPods),
		head:    "pods", sides: sides, busy: busy, change: s.changePod,
	}
	const all, page = podsPath, podsPath + "?limit=500"
	label := podsPath + "?labelSelector=" + workload.HundredthLabel + "%3D7"
	node := podsPath + "?fieldSelector=spec.nodeName%3D" + nodesFor(formsPods).Node(1)
	for _, l := range []struct {
		name, path, accept string
		gzip               bool
	}{
		{"all, JSON", all, acceptJSON, false},
		{"all, JSON, gzip", all, acceptJSON, true},
		{"all, protobuf", all, acceptProtobuf, false},
		{"all, protobuf, gzip", all, acceptProtobuf, true},
		{"all, metadata", all, acceptMetadata, false},
		{"limit=500, JSON", page, acceptJSON, false},
		{"limit=500, protobuf, gzip", page, acceptProtobuf, true},
		{"1% by label, JSON", label, acceptJSON, false},
		{"1% by label, protobuf, gzip", label, acceptProtobuf, true},
		{"one node's, JSON", node, acceptJSON, false},
		{"one node's, protobuf, gzip", node, acceptProtobuf, true},
	} {
		load := load{Path: l.path, Accept: l.accept, Gzip: l.gzip}
		of.lists = append(of.lists, newestList{l.name, load, min(set.requests, formsRequests)})
	}
	return of
}

// warmForms has the collections of all forms loaded.
func (s *newestScene) warmForms(ctx context.Context) error {
	for _, accept := range []string{acceptJSON, acceptProtobuf, acceptMetadata} {
		if _, err := s.warm(ctx, load{Path: list(anyVersion()), Accept: accept}); err != nil {
			return err
		}
	}
	return nil
}

// changePod writes a pod.
func (s *newestScene) changePod(ctx context.Context, patch []byte) error {
	one := nodesFor(formsPods).Pod(0, workload.NamespaceOf(0))
	_, err := s.kube.CoreV1().Pods(one.Namespace).Patch(ctx, one.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}
