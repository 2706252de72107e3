package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/harness/poll"
	"github.com/listproxy/listproxy/test/harness/workload"
)

// mix measures what the servers compute for clients of all sorts: those that are told of changes,
// those that start, and those that ask again and again.
func (s *watchScene) mix(ctx context.Context, set settings) (*table, error) {
	pods, err := s.some(ctx, controlplane.TeamA, 200)
	if err != nil {
		return nil, err
	}
	m := &mix{Seconds: set.span, Jobs: mixJobs(set.span, pods)}
	t := &table{
		caption: fmt.Sprintf("The mix, for %d s: %d node agents and %d informers of all pods that are told of changes, and a second: ",
			set.span, min(set.agents, mixAgents), mixInformers) + describe(m.Jobs, set.span) + ".",
		head: []string{"the mix", "kube-apiserver, CPU", "less", "listproxy, CPU", "both", "less", "answers", "from memory", "watches from memory"},
	}
	forwarding := s.forwarding.RESTConfig(s.cp.RESTConfig(controlplane.Admin))
	sides := s.sides()
	sides[1].name = "listproxy, both switches on"
	sides = slices.Insert(sides, 1, newestSide{
		name: "listproxy, neither", server: server{URL: forwarding.Host, CA: forwarding.CAData, Token: forwarding.BearerToken},
		pids: []int{s.apiserver, s.forwarding.PID()},
	})
	var straight time.Duration
	for _, side := range sides {
		path, err := s.watching(ctx, side.server, "")
		if err != nil {
			return nil, err
		}
		paths := slices.Repeat([]string{path}, mixInformers)
		for i := range min(set.agents, mixAgents) {
			paths = append(paths, path+"&fieldSelector=spec.nodeName%3D"+workload.Pods{Nodes: set.agents}.Node(i))
		}
		opened, err := s.begin(side, paths, perConnection, opensAtOnce)
		if err != nil {
			return nil, err
		}
		// What a list costs is learned, and connections are there.
		learned := &mix{Seconds: 3, Jobs: slices.Clone(m.Jobs)}
		for i := range learned.Jobs {
			learned.Jobs[i].Times = max(mixClients, learned.Jobs[i].Times*3/set.span)
		}
		if _, err := order(s.client, watchOrder{Mix: learned, Server: side.server}); err != nil {
			return nil, fmt.Errorf("%s: %w", side.name, err)
		}
		var done watchOutcome
		took, err := used(side.pids, func() (err error) {
			done, err = order(s.client, watchOrder{Mix: m, Server: side.server})
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", side.name, err)
		}
		if _, err := order(s.client, watchOrder{Close: true}); err != nil {
			return nil, err
		}
		if straight == 0 {
			straight = took[0]
		}
		answers, hits := 0, 0
		for _, n := range done.Mixed.Done {
			answers += n
		}
		for _, n := range done.Mixed.Hits {
			hits += n
		}
		cells := []string{
			side.name, millis(took[0]), ratio(float64(straight), float64(took[0])), "", millis(sum(took)), ratio(float64(straight), float64(sum(took))),
			fmt.Sprint(answers), percent(hits, answers), percent(opened.Hits, len(paths)),
		}
		if len(took) > 1 {
			cells[3] = millis(took[1])
		}
		t.add(cells...)
		poll.Pause(ctx, settleFor)
	}
	return t, nil
}

const (
	mixAgents    = 500
	mixInformers = 20
)

// mixJobs are the sorts of requests, for so many seconds; pods are those that change.
func mixJobs(seconds int, pods []*corev1.Pod) []job {
	const namespaced = "/api/v1/namespaces/" + controlplane.TeamA + "/pods"
	many := func(name string, perSecond float64, accept string, paths ...string) job {
		return job{Name: name, Paths: paths, Accept: accept, Times: max(1, int(perSecond*float64(seconds)))}
	}
	starting := many("informers that start", 0.5, acceptProtobuf, streamingList+"&resourceVersion=0")
	starting.Stream = true
	paging := many("walks over all pods, 500 a page", 0.5, acceptJSON, "/api/v1/pods?limit=500")
	paging.Walk = true
	changing := many("changes", 20, acceptProtobuf)
	changing.Patch = true
	for _, pod := range pods {
		changing.Paths = append(changing.Paths, namespaced+"/"+pod.Name)
	}
	return []job{
		starting,
		many("lists at resourceVersion=0", 2, acceptProtobuf, namespaced+"?resourceVersion=0"),
		many("polls of the newest state of a namespace", 5, acceptJSON, namespaced),
		paging,
		many("lists by label", 2, acceptJSON, "/api/v1/pods?labelSelector="+workload.HundredthLabel+"%3D7"),
		many("tables", 0.5, acceptJSON+";as=Table;v=v1;g=meta.k8s.io,"+acceptJSON, namespaced+"?limit=500"),
		many("GETs", 50, acceptProtobuf, changing.Paths...),
		changing,
	}
}

// describe says how often each sort of request is sent in a second.
func describe(jobs []job, seconds int) string {
	texts := make([]string, len(jobs))
	for i, j := range jobs {
		texts[i] = fmt.Sprintf("%.3g %s", float64(j.Times)/float64(seconds), j.Name)
	}
	return strings.Join(texts, ", ")
}
