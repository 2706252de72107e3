package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/workload"
)

const podsPath = "/api/v1/pods?"

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

// fromAnywhere returns requests for a path in some formats, whether they are answered from memory or forwarded.
func fromAnywhere(name, path string, formats ...format) (requests []request) {
	for _, f := range formats {
		requests = append(requests, request{
			name: name + ", " + string(f), path: path, accept: f.accept(), gzip: f == jsonGzip || f == clientGo,
		})
	}
	return requests
}

// fromMemory returns such requests that listproxy must answer from memory.
func fromMemory(name, path string, formats ...format) []request {
	requests := fromAnywhere(name, path, formats...)
	for i := range requests {
		requests[i].mustHit = true
	}
	return requests
}

// modify returns the requests, each modified.
func modify(requests []request, change func(q *request)) []request {
	for i := range requests {
		change(&requests[i])
	}
	return requests
}

// lists measures what comes from memory while nothing changes.
func lists(ctx context.Context, b *bench) error {
	if err := b.fillPods(ctx); err != nil {
		return err
	}
	if err := workload.FillConfigMaps(ctx, b.cp, configMapsNamespace(few), few, configMapBytes); err != nil {
		return err
	}
	sides, err := b.startAllSides(ctx, "--eager", "pods", "--watches")
	if err != nil {
		return err
	}
	const (
		allPods     = podsPath + ask.AnyVersion
		notOlder    = podsPath + "resourceVersion=" + newestRevision + "&resourceVersionMatch=NotOlderThan"
		exactNewest = "&resourceVersion=" + newestRevision + "&resourceVersionMatch=Exact"
	)
	var (
		page       = strconv.Itoa(b.settings.page)
		podName    = b.nodes().Pod(0, workload.NamespaceOf(0)).Name
		byName     = podsPath + "fieldSelector=metadata.name%3D" + podName
		stream     = podsPath + strings.Replace(ask.StreamingList, "&", "&resourceVersion=0&", 1)
		configMaps = "/api/v1/namespaces/" + configMapsNamespace(few) + "/configmaps?" + ask.AnyVersion
	)
	all := slices.Concat(
		fromMemory("all", allPods, jsonPlain, jsonGzip, protobufPlain, clientGo, metadataJSON),
		modify(fromMemory("all, HTTP/1.1", allPods, jsonPlain, clientGo), func(q *request) { q.http1 = true }),
		fromMemory("all, not older than the newest", notOlder, clientGo),
		modify(fromMemory("all, 1% changed since", allPods, clientGo), func(q *request) { q.changesPods = true }),
		fromMemory("first "+page, podsPath+"limit="+page+exactNewest, jsonPlain, clientGo),
		fromMemory(page+" in the middle", podsPath+"continue="+middlePage+"&limit="+page, jsonPlain, clientGo),
		fromMemory("1% by label", byLabel+"&"+ask.AnyVersion, jsonPlain, clientGo),
		fromMemory("one node's", b.byNode()+"&"+ask.AnyVersion, jsonPlain, clientGo),
		fromMemory("one by name", byName+"&"+ask.AnyVersion, jsonPlain, clientGo),
		modify(fromMemory("streaming list", stream, jsonPlain, protobufPlain), func(q *request) { q.stream = true }),
		fromMemory(strconv.Itoa(few)+" config maps", configMaps, jsonPlain, clientGo),
	)
	_, err = b.compare(ctx, fmt.Sprintf("Lists of %d pods at `resourceVersion=0` unless the row says otherwise, over HTTP/2, pages of %s. "+
		"CPU is that of the processes for one answer.", b.settings.pods, page), sides, all)
	return err
}

// startAllSides returns kube-apiserver, and starts listproxy, that of the commit before if --before names one, and the limit.
func (b *bench) startAllSides(ctx context.Context, args ...string) ([]side, error) {
	proxied, err := b.startSides(ctx, "listproxy", args...)
	if err != nil {
		return nil, err
	}
	return b.addLimit(ctx, append([]side{direct}, proxied...))
}

// few is the number of config maps in a small list.
const few = 10

const byLabel = podsPath + "labelSelector=" + workload.HundredthLabel + "%3D7"

func (b *bench) byNode() string {
	return podsPath + "fieldSelector=spec.nodeName%3D" + b.nodes().Node(1)
}

// forward measures what listproxy adds to what it forwards.
func forward(ctx context.Context, b *bench) error {
	if err := b.fillPods(ctx); err != nil {
		return err
	}
	sides, err := b.startAllSides(ctx, "--eager", "pods")
	if err != nil {
		return err
	}
	var all []request
	for _, http1 := range []bool{false, true} {
		for _, clients := range []int{1, b.settings.clients} {
			sent := fromAnywhere("GET of a namespace", "/api/v1/namespaces/default", clientGo)
			if clients == 1 && !http1 {
				sent = append(sent, fromAnywhere("one node's pods, newest", b.byNode(), clientGo)...)
				sent = append(sent, fromAnywhere("all pods, newest", strings.TrimSuffix(podsPath, "?"), jsonPlain, clientGo)...)
			}
			for _, q := range sent {
				q.clients, q.http1 = clients, http1
				q.name += fmt.Sprintf(", %d at a time", clients)
				if http1 {
					q.name += ", HTTP/1.1"
				}
				all = append(all, q)
			}
		}
	}
	_, err = b.compare(ctx, fmt.Sprintf("What listproxy forwards: GETs, and lists of the newest state of %d pods without `--consistent-lists`.",
		b.settings.pods), sides, all)
	return err
}

const (
	// configMapBytes of data make a config map of about 1 kB.
	configMapBytes = 600
	// costMemory is the time for which listproxy may still believe costs of lists from before the writes began: 500 times
	// the duration of a list of one object.
	costMemory = 40 * time.Second
)

// configMapsNamespace returns the namespace with n config maps. That of 0 has the one config map that [bench.startWrites]
// changes.
func configMapsNamespace(n int) string { return "objects-" + strconv.Itoa(n) }

// newest measures consistent lists, of few objects and of many: while these objects change, and while others do.
func newest(ctx context.Context, b *bench) error {
	if err := b.fillPods(ctx); err != nil {
		return err
	}
	for _, n := range b.settings.objects {
		if err := workload.FillConfigMaps(ctx, b.cp, configMapsNamespace(n), n, configMapBytes); err != nil {
			return err
		}
	}
	sides := []side{direct}
	for _, mode := range []string{"false", "true", "always"} {
		proxied, err := b.startSides(ctx, "`--consistent-lists="+mode+"`",
			"--eager", "pods", "--eager", "configmaps", "--consistent-lists="+mode)
		if err != nil {
			return err
		}
		// Each representation has its own state in memory.
		for _, q := range fromMemory("", podsPath+ask.AnyVersion, jsonPlain, protobufPlain, metadataJSON) {
			for _, at := range proxied {
				if _, err := b.warmUp(ctx, at, q); err != nil {
					return err
				}
			}
		}
		sides = append(sides, proxied...)
	}
	var all []request
	for _, n := range b.settings.objects {
		path := "/api/v1/namespaces/" + configMapsNamespace(n) + "/configmaps"
		all = append(all, fromAnywhere(strconv.Itoa(n)+" config maps", path, jsonPlain)...)
	}
	page := strconv.Itoa(b.settings.page)
	all = slices.Concat(all,
		fromAnywhere("a probe", "/api/v1/namespaces/default/configmaps?fieldSelector=metadata.name%3D~probe", jsonPlain),
		fromAnywhere("all pods", "/api/v1/pods", jsonPlain, jsonGzip, protobufPlain, clientGo, metadataJSON),
		fromAnywhere("first "+page+" pods", podsPath+"limit="+page, jsonPlain, clientGo),
		fromAnywhere("1% by label", byLabel, jsonPlain, clientGo),
		fromAnywhere("one node's", b.byNode(), jsonPlain, clientGo),
	)
	for _, busy := range []bool{false, true} {
		written := "quiet: another resource is"
		if busy {
			written = "busy: config maps in another namespace, ten of the pods and another resource are"
		}
		caption := fmt.Sprintf("Lists of the newest state, %s written %d times a second. There are %d pods. "+
			"A probe is what listproxy asks to learn the newest revision.", written, writesPerSecond, b.settings.pods)
		stop, err := b.startWrites(ctx, busy)
		if err != nil {
			return err
		}
		clock.Sleep(ctx, costMemory)
		_, err = b.compare(ctx, caption, sides, all)
		if err = errors.Join(err, stop()); err != nil {
			return err
		}
	}
	return nil
}
