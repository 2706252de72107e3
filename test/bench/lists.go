package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/workload"
)

const (
	podsPath = "/api/v1/pods"
	// podsWith begins the path of pods with a query.
	podsWith = podsPath + "?"
	// byLabel is the path of a hundredth of the pods.
	byLabel = podsWith + "labelSelector=" + workload.HundredthLabel + "%3D7"
	// fewConfigMaps is the number of objects in a small list.
	fewConfigMaps = 10
)

// format is a media type and a content encoding.
type format string

const (
	jsonPlain     format = "JSON"
	jsonGzip      format = "JSON, gzip"
	protobufPlain format = "protobuf"
	clientGo      format = "protobuf, gzip" // as client-go's typed clients
	metadataJSON  format = "metadata"
)

// accept returns the Accept header.
func (f format) accept() string {
	switch f {
	case protobufPlain, clientGo:
		return ask.Protobuf + "," + ask.JSON
	case metadataJSON:
		return ask.Metadata
	}
	return ask.JSON
}

// newRequest returns a request for a path in a format. It has no name, which only rows of tables need.
func newRequest(path string, f format) request {
	return request{path: path, accept: f.accept(), gzip: f == jsonGzip || f == clientGo}
}

// fromAnywhere returns a request for a path in each format. listproxy may answer them from memory or forward them.
func fromAnywhere(name, path string, formats ...format) (requests []request) {
	for _, f := range formats {
		q := newRequest(path, f)
		q.name = name + ", " + string(f)
		requests = append(requests, q)
	}
	return requests
}

// fromMemory returns a request for a path in each format. listproxy must answer them from memory.
func fromMemory(name, path string, formats ...format) []request {
	return modify(fromAnywhere(name, path, formats...), func(q *request) { q.mustHit = true })
}

// modify changes each of the requests, and returns them.
func modify(requests []request, change func(q *request)) []request {
	for i := range requests {
		change(&requests[i])
	}
	return requests
}

// runLists measures what comes from memory while nothing changes.
func runLists(ctx context.Context, b *bench) error {
	if err := workload.FillConfigMaps(ctx, b.cp, configMapsNamespace(fewConfigMaps), fewConfigMaps, configMapBytes); err != nil {
		return err
	}
	sides, err := b.startAllSides(ctx, "--eager", "pods", "--watches")
	if err != nil {
		return err
	}
	const (
		allPods     = podsWith + ask.AnyVersion
		notOlder    = podsWith + "resourceVersion=" + newestRevision + "&resourceVersionMatch=NotOlderThan"
		exactNewest = "&resourceVersion=" + newestRevision + "&resourceVersionMatch=Exact"
	)
	var (
		page       = strconv.Itoa(b.settings.page())
		podName    = b.podShape().Pod(0, workload.NamespaceOf(0)).Name
		byName     = podsWith + "fieldSelector=metadata.name%3D" + podName
		stream     = podsWith + strings.Replace(ask.StreamingList, "&", "&resourceVersion=0&", 1)
		configMaps = "/api/v1/namespaces/" + configMapsNamespace(fewConfigMaps) + "/configmaps?" + ask.AnyVersion
	)
	all := slices.Concat(
		fromMemory("all", allPods, jsonPlain, jsonGzip, protobufPlain, clientGo, metadataJSON),
		modify(fromMemory("all, HTTP/1.1", allPods, jsonPlain, clientGo), func(q *request) { q.version = http1 }),
		fromMemory("all, not older than the newest", notOlder, clientGo),
		modify(fromMemory("all, 1% changed since", allPods, clientGo), func(q *request) { q.changesPods = true }),
		fromMemory("first "+page, podsWith+"limit="+page+exactNewest, jsonPlain, clientGo),
		fromMemory(page+" in the middle", podsWith+"continue="+middlePage+"&limit="+page, jsonPlain, clientGo),
		fromMemory("1% by label", byLabel+"&"+ask.AnyVersion, jsonPlain, clientGo),
		fromMemory("one node's", b.byNode()+"&"+ask.AnyVersion, jsonPlain, clientGo),
		fromMemory("one by name", byName+"&"+ask.AnyVersion, jsonPlain, clientGo),
		modify(fromMemory("streaming list", stream, jsonPlain, protobufPlain), func(q *request) { q.stream = true }),
		fromMemory(strconv.Itoa(fewConfigMaps)+" config maps", configMaps, jsonPlain, clientGo),
	)
	_, err = b.compare(ctx, fmt.Sprintf("Lists of %d pods at `resourceVersion=0` unless the row says otherwise, over HTTP/2, pages of %s. "+
		"CPU is that of the processes for one answer.", b.settings.pods, page), sides, all)
	return err
}

// startAllSides starts listproxy and the limit, and with --before also the listproxy of the commit before. It returns
// kube-apiserver and these sides.
func (b *bench) startAllSides(ctx context.Context, args ...string) ([]side, error) {
	proxied, err := b.startSides(ctx, "listproxy", args...)
	if err != nil {
		return nil, err
	}
	return b.addLimit(ctx, append([]side{direct}, proxied...))
}

// byNode returns the path of the pods of one node.
func (b *bench) byNode() string {
	return podsWith + "fieldSelector=spec.nodeName%3D" + b.podShape().Node(1)
}

// runForward measures what listproxy adds to the cost of requests that it forwards.
func runForward(ctx context.Context, b *bench) error {
	sides, err := b.startAllSides(ctx, "--eager", "pods")
	if err != nil {
		return err
	}
	const getNamespace = "/api/v1/namespaces/default"
	const many = 4 // concurrent clients
	all := slices.Concat(
		fromAnywhere("GET of a namespace, 1 at a time", getNamespace, clientGo),
		fromAnywhere("one node's pods, newest, 1 at a time", b.byNode(), clientGo),
		fromAnywhere("all pods, newest, 1 at a time", podsPath, jsonPlain, clientGo),
		modify(fromAnywhere(fmt.Sprintf("GET of a namespace, %d at a time", many), getNamespace, clientGo),
			func(q *request) { q.clients = many }),
		modify(fromAnywhere("GET of a namespace, 1 at a time, HTTP/1.1", getNamespace, clientGo),
			func(q *request) { q.version = http1 }),
		modify(fromAnywhere(fmt.Sprintf("GET of a namespace, %d at a time, HTTP/1.1", many), getNamespace, clientGo),
			func(q *request) { q.clients, q.version = many, http1 }),
	)
	_, err = b.compare(ctx, fmt.Sprintf("What listproxy forwards: GETs, and lists of the newest state of %d pods without `--consistent-lists`.",
		b.settings.pods), sides, all)
	return err
}

// configMapBytes is the size of a config map's data. With its metadata, the config map has about 1 kB.
const configMapBytes = 600

// configMapsNamespace returns the name of the namespace that has n config maps.
func configMapsNamespace(n int) string { return "objects-" + strconv.Itoa(n) }

// runNewest measures consistent lists, which must show etcd's newest state, of few objects and of many. It measures them first
// while only other objects change, and then while these objects change.
func runNewest(ctx context.Context, b *bench) error {
	for _, n := range b.settings.objects {
		if err := workload.FillConfigMaps(ctx, b.cp, configMapsNamespace(n), n, configMapBytes); err != nil {
			return err
		}
	}
	sides, err := b.startModes(ctx)
	if err != nil {
		return err
	}
	requests := b.newestRequests()
	for _, run := range []struct {
		caption string
		writes  writing
	}{
		{caption: "quiet: another resource is written", writes: quiet},
		{caption: "busy: config maps in another namespace, ten of the pods and another resource are written", writes: busy},
	} {
		caption := fmt.Sprintf("Lists of the newest state, %s %d times a second. There are %d pods. "+
			"A probe is what listproxy asks to learn the newest revision.", run.caption, writesPerSecond, b.settings.pods)
		stop, err := b.startWrites(ctx, run.writes)
		if err != nil {
			return err
		}
		_, err = b.compare(ctx, caption, sides, requests)
		if err = errors.Join(err, stop()); err != nil {
			return err
		}
	}
	return nil
}

// startModes starts a listproxy for each value of --consistent-lists, and has each load pods in all representations. It returns
// kube-apiserver and these sides.
func (b *bench) startModes(ctx context.Context) ([]side, error) {
	sides := []side{direct}
	for _, mode := range []string{"false", "true", "always"} {
		proxied, err := b.startSides(ctx, "`--consistent-lists="+mode+"`",
			"--eager", "pods", "--eager", "configmaps", "--consistent-lists="+mode)
		if err != nil {
			return nil, err
		}
		for _, target := range proxied {
			if err := b.warmUpPods(ctx, target, jsonPlain, protobufPlain, metadataJSON); err != nil {
				return nil, err
			}
		}
		sides = append(sides, proxied...)
	}
	return sides, nil
}

// newestRequests returns the requests of runNewest: consistent lists of few objects and of many. The request "a probe" is like
// the one that listproxy sends to learn the newest revision: it lists config maps by a name that none can have.
func (b *bench) newestRequests() (all []request) {
	for _, n := range b.settings.objects {
		path := "/api/v1/namespaces/" + configMapsNamespace(n) + "/configmaps"
		all = append(all, fromAnywhere(strconv.Itoa(n)+" config maps", path, jsonPlain)...)
	}
	page := strconv.Itoa(b.settings.page())
	return slices.Concat(all,
		fromAnywhere("a probe", "/api/v1/namespaces/default/configmaps?fieldSelector=metadata.name%3D~probe", jsonPlain),
		fromAnywhere("all pods", podsPath, jsonPlain, jsonGzip, protobufPlain, clientGo, metadataJSON),
		fromAnywhere("first "+page+" pods", podsWith+"limit="+page, jsonPlain, clientGo),
		fromAnywhere("1% by label", byLabel, jsonPlain, clientGo),
		fromAnywhere("one node's", b.byNode(), jsonPlain, clientGo),
	)
}
