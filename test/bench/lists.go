package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/workload"
)

const podsPath = "/api/v1/pods?"

// form is in what form an answer is asked for.
type form string

const (
	plain     form = "JSON"
	zipped    form = "JSON, gzip"
	protobuf  form = "protobuf"
	goClients form = "protobuf, gzip" // what client-go's typed clients ask for
	metadata  form = "metadata"
)

// accept is the header.
func (f form) accept() string {
	switch f {
	case protobuf, goClients:
		return ask.Protobuf + "," + ask.JSON
	case metadata:
		return ask.Metadata
	}
	return ask.JSON
}

// in returns requests for a path in forms.
func in(name, path string, memory bool, forms ...form) (all []request) {
	for _, f := range forms {
		all = append(all, request{
			name: name + ", " + string(f), path: path, accept: f.accept(), gzip: f == zipped || f == goClients, memory: memory,
		})
	}
	return all
}

// lists measures what comes from memory while nothing changes.
func lists(ctx context.Context, b *bench) error {
	if err := b.fill(ctx); err != nil {
		return err
	}
	if err := workload.FillConfigMaps(ctx, b.cp, sized(few), few, ofConfigMaps); err != nil {
		return err
	}
	sides, err := b.sides(ctx, "--eager", "pods", "--watches")
	if err != nil {
		return err
	}
	name := b.nodes().Pod(0, workload.NamespaceOf(0)).Name
	page := strconv.Itoa(b.settings.page)
	all := in("all", podsPath+ask.AnyVersion, true, plain, zipped, protobuf, goClients, metadata)
	for _, q := range in("all, HTTP/1.1", podsPath+ask.AnyVersion, true, plain, goClients) {
		q.http1 = true
		all = append(all, q)
	}
	all = append(all, in("all, not older than the newest", podsPath+"resourceVersion=NEWEST&resourceVersionMatch=NotOlderThan", true, goClients)...)
	for _, q := range in("all, 1% changed since", podsPath+ask.AnyVersion, true, goClients) {
		q.changed = true
		all = append(all, q)
	}
	all = append(all, in("first "+page, podsPath+"limit="+page+"&resourceVersion=NEWEST&resourceVersionMatch=Exact", true, plain, goClients)...)
	all = append(all, in(page+" in the middle", podsPath+"continue=MIDDLE&limit="+page, true, plain, goClients)...)
	all = append(all, in("1% by label", byLabel+"&"+ask.AnyVersion, true, plain, goClients)...)
	all = append(all, in("one node's", b.byNode()+"&"+ask.AnyVersion, true, plain, goClients)...)
	all = append(all, in("one by name", podsPath+"fieldSelector=metadata.name%3D"+name+"&"+ask.AnyVersion, true, plain, goClients)...)
	for _, q := range in("streaming list", podsPath+strings.Replace(ask.StreamingList, "&", "&resourceVersion=0&", 1), true, plain, protobuf) {
		q.stream = true
		all = append(all, q)
	}
	all = append(all, in(strconv.Itoa(few)+" config maps", "/api/v1/namespaces/"+sized(few)+"/configmaps?"+ask.AnyVersion, true, plain, goClients)...)
	_, err = b.compare(ctx, fmt.Sprintf("Lists of %d pods at `resourceVersion=0` unless the row says otherwise, over HTTP/2, pages of %s. "+
		"CPU is that of the processes for one answer.", b.settings.pods, page), sides, all)
	return err
}

// sides are kube-apiserver, listproxy, that of the commit before if --before names one, and the limit.
func (b *bench) sides(ctx context.Context, args ...string) ([]side, error) {
	proxied, err := b.withBefore(ctx, "listproxy", args...)
	if err != nil {
		return nil, err
	}
	return b.withLimit(ctx, append([]side{{name: straight}}, proxied...))
}

// few is how many config maps a small list has.
const few = 10

const byLabel = podsPath + "labelSelector=" + workload.HundredthLabel + "%3D7"

func (b *bench) byNode() string {
	return podsPath + "fieldSelector=spec.nodeName%3D" + b.nodes().Node(1)
}

// forward measures what listproxy adds to what it forwards.
func forward(ctx context.Context, b *bench) error {
	if err := b.fill(ctx); err != nil {
		return err
	}
	sides, err := b.sides(ctx, "--eager", "pods")
	if err != nil {
		return err
	}
	var all []request
	for _, http1 := range []bool{false, true} {
		for _, clients := range []int{1, b.settings.clients} {
			sent := in("GET of a namespace", "/api/v1/namespaces/default", false, goClients)
			if clients == 1 && !http1 {
				sent = append(sent, in("one node's pods, newest", b.byNode(), false, goClients)...)
				sent = append(sent, in("all pods, newest", strings.TrimSuffix(podsPath, "?"), false, plain, goClients)...)
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
	// ofConfigMaps is how many bytes of data a config map has: with the rest it is about 1 kB.
	ofConfigMaps = 600
	// settling is for how long listproxy may believe what lists cost before, while other things
	// changed: 500 times as long as a list of one object takes.
	settling = 40 * time.Second
)

// sized is the namespace with so many config maps; that of 0 is the one whose config map changes.
func sized(n int) string { return "objects-" + strconv.Itoa(n) }

// newest measures lists of the newest state, of few objects and of many, while these change and
// while others do.
func newest(ctx context.Context, b *bench) error {
	if err := b.fill(ctx); err != nil {
		return err
	}
	for _, n := range b.settings.objects {
		if err := workload.FillConfigMaps(ctx, b.cp, sized(n), n, ofConfigMaps); err != nil {
			return err
		}
	}
	sides := []side{{name: straight}}
	for _, mode := range []string{"false", "true", "always"} {
		proxied, err := b.withBefore(ctx, "`--consistent-lists="+mode+"`", "--eager", "pods", "--eager", "configmaps", "--consistent-lists="+mode)
		if err != nil {
			return err
		}
		for _, q := range in("", podsPath+ask.AnyVersion, true, plain, protobuf, metadata) {
			for _, at := range proxied {
				if _, err := b.learn(ctx, at, q); err != nil { // each is kept by itself
					return err
				}
			}
		}
		sides = append(sides, proxied...)
	}
	var all []request
	for _, n := range b.settings.objects {
		all = append(all, in(strconv.Itoa(n)+" config maps", "/api/v1/namespaces/"+sized(n)+"/configmaps", false, plain)...)
	}
	all = append(all, in("a probe", "/api/v1/namespaces/default/configmaps?fieldSelector=metadata.name%3D~probe", false, plain)...)
	all = append(all, in("all pods", "/api/v1/pods", false, plain, zipped, protobuf, goClients, metadata)...)
	all = append(all, in("first "+strconv.Itoa(b.settings.page)+" pods", podsPath+"limit="+strconv.Itoa(b.settings.page), false, plain, goClients)...)
	all = append(all, in("1% by label", byLabel, false, plain, goClients)...)
	all = append(all, in("one node's", b.byNode(), false, plain, goClients)...)
	for _, busy := range []bool{false, true} {
		caption := "quiet: another resource is"
		if busy {
			caption = "busy: config maps in another namespace, ten of the pods and another resource are"
		}
		caption = fmt.Sprintf("Lists of the newest state, %s written %d times a second. There are %d pods. "+
			"A probe is what listproxy asks to learn the newest revision.", caption, otherWrites, b.settings.pods)
		stop, err := b.disturb(ctx, busy)
		if err != nil {
			return err
		}
		clock.Sleep(ctx, settling)
		_, err = b.compare(ctx, caption, sides, all)
		if err = errors.Join(err, stop()); err != nil {
			return err
		}
	}
	return nil
}
