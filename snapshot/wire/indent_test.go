package wire

import (
	"bufio"
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/test/expect"
)

// indentPieces writes and measures JSON in pieces that end where cut says, outside of strings.
func indentPieces(t *testing.T, text []byte, bufferSize int, cut func(i int) bool) (string, int) {
	t.Helper()
	var got bytes.Buffer
	out := bufio.NewWriterSize(&got, bufferSize)
	var writes, sizes Indenter
	size, begin := 0, 0
	piece := func(p []byte) {
		expect.NoError(t, writes.Write(out, p))
		size += sizes.Size(p)
	}
	for i := 0; i < len(text); {
		end := i + 1
		if text[i] == '"' {
			end = skipString(text, i)
		}
		i = end
		if cut(i) {
			piece(text[begin:i])
			begin = i
		}
	}
	piece(text[begin:])
	expect.NoError(t, out.Flush())
	if writes.Deepest != sizes.Deepest {
		t.Errorf("depth %d when written, %d when measured", writes.Deepest, sizes.Deepest)
	}
	return got.String(), size
}

// checkIndent: encoding/json indents the same, however the text is cut; and the size is right.
func checkIndent(t *testing.T, text []byte) {
	t.Helper()
	var want bytes.Buffer
	expect.NoError(t, json.Indent(&want, bytes.TrimSpace(text), "", "  "))
	for name, cut := range map[string]func(int) bool{
		"whole":       func(int) bool { return false },
		"byte":        func(int) bool { return true },
		"every third": func(i int) bool { return i%3 == 0 },
	} {
		for _, bufferSize := range []int{16, 64 << 10} {
			got, size := indentPieces(t, text, bufferSize, cut)
			if got != want.String() {
				t.Errorf("%s, %d: %.200q, encoding/json makes %.200q of %.200q", name, bufferSize, got, want.String(), text)
			}
			if size != want.Len() {
				t.Errorf("%s: %d bytes, encoding/json makes %d of %.200q", name, size, want.Len(), text)
			}
		}
	}
}

func indentable() []string {
	return []string{
		`{}`, `[]`, `[{}]`, `{"a":{}}`, `{"a":[],"b":{}}`, `null`, `"x"`, ` 1 `, "{}\n", `[[],[[]],{}]`,
		`{"kind":"PodList","metadata":{"resourceVersion":"7"},"items":[{"a":1},{"a":[1,-2.50e+3,true,null]}]}` + "\n",
		`{"kind":"PodList","metadata":{"resourceVersion":"7"},"items":null}` + "\n",
		`{"a":"{\"b\":[1,2]}","c\"\\":"\\","d":"\u003c,:\u2028","e":"<&>"}`,
		" { \"a\" :\t[ ] ,\r\n \"b\" : { } , \"c\" : [ 1 , 2 ] } ",
		`{"long":"` + strings.Repeat("x, ", 40_000) + `","n":[1,2,3]}`,
		strings.Repeat(`{"a":`, 200) + "[1,2]" + strings.Repeat("}", 200),
	}
}

func TestIndent(t *testing.T) {
	for _, text := range indentable() {
		checkIndent(t, []byte(text))
	}
}

// TestDeepest: from MaxIndentDepth on, encoding/json does not indent.
func TestDeepest(t *testing.T) {
	for _, depth := range []int{1, 3, MaxIndentDepth, MaxIndentDepth + 1} {
		text := []byte(strings.Repeat("[", depth) + strings.Repeat("]", depth))
		var in Indenter
		in.Size(text)
		if in.Deepest != depth {
			t.Errorf("depth %d, want %d", in.Deepest, depth)
		}
		var want bytes.Buffer
		if err := json.Indent(&want, text, "", "  "); (err == nil) != (in.Deepest <= MaxIndentDepth) {
			t.Errorf("depth %d: encoding/json says %v", depth, err)
		}
	}
}

// TestIndentNeedsNoMemory: a page of any size is indented in the writer's buffer.
func TestIndentNeedsNoMemory(t *testing.T) {
	text := bytes.Repeat([]byte(`{"metadata":{"name":"x","labels":{"a":"b"}}},`), 10_000)
	out := bufio.NewWriter(discard{})
	if n := testing.AllocsPerRun(10, func() {
		in := Indenter{depth: 2}
		_ = in.Write(out, text)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// FuzzIndent: all valid JSON is indented as encoding/json does; what is not valid does no harm.
func FuzzIndent(f *testing.F) {
	for _, text := range append(indentable(), someJSON()...) {
		if len(text) < 1000 {
			f.Add([]byte(text))
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if json.Valid(text) {
			checkIndent(t, text)
			return
		}
		_, _ = indentPieces(t, text, 64, func(i int) bool { return i%2 == 0 })
	})
}

// benchPod is a pod as kube-apiserver writes it, with managed fields.
func benchPod() []byte {
	return []byte(`{"metadata":{"name":"web-7d4b9c6f5-x2lkq","generateName":"web-7d4b9c6f5-","namespace":"team-a","uid":"0b8f6a7e-2f5c-4a53-9a63-8c1d7b7a3f11","resourceVersion":"48211","generation":1,"creationTimestamp":"2026-11-20T08:15:30Z","labels":{"app":"web","pod-template-hash":"7d4b9c6f5","tier":"front"},"annotations":{"prometheus.io/scrape":"true","prometheus.io/port":"9090"},"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web-7d4b9c6f5","uid":"5a0e7c3b-3f1c-4b1d-8a36-0d8d4f6d2e10","controller":true,"blockOwnerDeletion":true}],"managedFields":[{"manager":"kube-controller-manager","operation":"Update","apiVersion":"v1","time":"2026-11-20T08:15:30Z","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:annotations":{".":{},"f:prometheus.io/port":{},"f:prometheus.io/scrape":{}},"f:generateName":{},"f:labels":{".":{},"f:app":{},"f:pod-template-hash":{},"f:tier":{}},"f:ownerReferences":{".":{},"k:{\"uid\":\"5a0e7c3b-3f1c-4b1d-8a36-0d8d4f6d2e10\"}":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"web\"}":{".":{},"f:env":{".":{},"k:{\"name\":\"MODE\"}":{".":{},"f:name":{},"f:value":{}}},"f:image":{},"f:imagePullPolicy":{},"f:name":{},"f:ports":{".":{},"k:{\"containerPort\":8080,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{},"f:protocol":{}}},"f:resources":{".":{},"f:limits":{".":{},"f:cpu":{},"f:memory":{}},"f:requests":{".":{},"f:cpu":{},"f:memory":{}}},"f:terminationMessagePath":{},"f:terminationMessagePolicy":{}}},"f:dnsPolicy":{},"f:enableServiceLinks":{},"f:restartPolicy":{},"f:schedulerName":{},"f:securityContext":{},"f:terminationGracePeriodSeconds":{}}}},{"manager":"kubelet","operation":"Update","apiVersion":"v1","time":"2026-11-20T08:15:33Z","fieldsType":"FieldsV1","fieldsV1":{"f:status":{"f:conditions":{"k:{\"type\":\"Ready\"}":{".":{},"f:lastProbeTime":{},"f:lastTransitionTime":{},"f:status":{},"f:type":{}}},"f:containerStatuses":{},"f:hostIP":{},"f:phase":{},"f:podIP":{},"f:podIPs":{".":{},"k:{\"ip\":\"10.2.3.4\"}":{".":{},"f:ip":{}}},"f:startTime":{}}},"subresource":"status"}]},"spec":{"volumes":[{"name":"kube-api-access-9x7fk","projected":{"sources":[{"serviceAccountToken":{"expirationSeconds":3607,"path":"token"}},{"configMap":{"name":"kube-root-ca.crt","items":[{"key":"ca.crt","path":"ca.crt"}]}},{"downwardAPI":{"items":[{"path":"namespace","fieldRef":{"apiVersion":"v1","fieldPath":"metadata.namespace"}}]}}],"defaultMode":420}}],"containers":[{"name":"web","image":"registry.example.com/team-a/web:v1.24.3","ports":[{"containerPort":8080,"protocol":"TCP"}],"env":[{"name":"MODE","value":"production"}],"resources":{"limits":{"cpu":"500m","memory":"512Mi"},"requests":{"cpu":"250m","memory":"256Mi"}},"volumeMounts":[{"name":"kube-api-access-9x7fk","readOnly":true,"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}],"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"IfNotPresent"}],"restartPolicy":"Always","terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst","serviceAccountName":"default","serviceAccount":"default","nodeName":"node-0042","securityContext":{},"schedulerName":"default-scheduler","tolerations":[{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":300},{"key":"node.kubernetes.io/unreachable","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}],"priority":0,"enableServiceLinks":true,"preemptionPolicy":"PreemptLowerPriority"},"status":{"phase":"Running","conditions":[{"type":"Initialized","status":"True","lastProbeTime":null,"lastTransitionTime":"2026-11-20T08:15:30Z"},{"type":"Ready","status":"True","lastProbeTime":null,"lastTransitionTime":"2026-11-20T08:15:33Z"},{"type":"ContainersReady","status":"True","lastProbeTime":null,"lastTransitionTime":"2026-11-20T08:15:33Z"},{"type":"PodScheduled","status":"True","lastProbeTime":null,"lastTransitionTime":"2026-11-20T08:15:30Z"}],"hostIP":"10.1.0.42","podIP":"10.2.3.4","podIPs":[{"ip":"10.2.3.4"}],"startTime":"2026-11-20T08:15:30Z","containerStatuses":[{"name":"web","state":{"running":{"startedAt":"2026-11-20T08:15:32Z"}},"lastState":{},"ready":true,"restartCount":0,"image":"registry.example.com/team-a/web:v1.24.3","imageID":"registry.example.com/team-a/web@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef","containerID":"containerd://89abcdef0123456789abcdef0123456789abcdef0123456789abcdef01234567","started":true}],"qosClass":"Burstable"}}`)
}

// BenchmarkIndent indents pods, measures how long they would be, and copies them as they are, all
// in bytes as they are kept; and has encoding/json indent them.
func BenchmarkIndent(b *testing.B) {
	pod := benchPod()
	out := bufio.NewWriterSize(discard{}, 64<<10)
	for name, run := range map[string]func(){
		"Write": func() {
			in := Indenter{depth: 2}
			_ = in.Write(out, pod)
		},
		"Size": func() {
			in := Indenter{depth: 2}
			_ = in.Size(pod)
		},
		"copy": func() { _, _ = out.Write(pod) },
		"encoding_json": func() {
			var buf bytes.Buffer
			_ = json.Indent(&buf, pod, "    ", "  ")
			_, _ = out.Write(buf.Bytes())
		},
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(pod)))
			b.ReportAllocs()
			for b.Loop() {
				run()
			}
		})
	}
}
