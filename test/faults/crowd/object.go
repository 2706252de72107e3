package crowd

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/listproxy/listproxy/test/harness/events"
	"github.com/listproxy/listproxy/test/harness/kinds"
)

// object is one version of an object.
type object struct {
	namespace, name string
	labels          map[string]string
	node            string
	revision        uint64
	// version is a sum of its metadata without the revision.
	version [sha256.Size]byte
}

// key is what initial events are ordered by.
func (o *object) key() string { return o.namespace + "/" + o.name }

// magic is what objects in protobuf begin with.
var magic = []byte("k8s\x00")

// readObject reads an object as etcd has it.
func readObject(raw []byte) (object, error) {
	var o struct {
		Metadata metav1.ObjectMeta
		Spec     struct{ NodeName string }
	}
	inner, binary := bytes.CutPrefix(raw, magic)
	if !binary {
		if err := json.Unmarshal(raw, &o); err != nil {
			return object{}, err
		}
		return newObject(o.Metadata, o.Spec.NodeName)
	}
	var u runtime.Unknown
	if err := u.Unmarshal(inner); err != nil {
		return object{}, err
	}
	if u.Kind == "Pod" {
		var pod corev1.Pod
		if err := pod.Unmarshal(u.Raw); err != nil {
			return object{}, err
		}
		return newObject(pod.ObjectMeta, pod.Spec.NodeName)
	}
	m, err := events.Meta(raw)
	if err != nil {
		return object{}, err
	}
	return newObject(m, "")
}

func newObject(m metav1.ObjectMeta, node string) (object, error) {
	version, err := versionOf(m)
	return object{namespace: m.Namespace, name: m.Name, labels: m.Labels, node: node, version: version}, err
}

func versionOf(m metav1.ObjectMeta) ([sha256.Size]byte, error) {
	m.ResourceVersion = ""
	written, err := json.Marshal(m)
	return sha256.Sum256(written), err
}

// selection is what a watch is for: objects of a kind; in a namespace, with a name, on a node, with
// a label, if these are not "".
type selection struct {
	kinds.Kind
	namespace, name, node, label, value string
}

func (s selection) has(o *object) bool {
	return o != nil && (s.namespace == "" || o.namespace == s.namespace) && (s.name == "" || o.name == s.name) &&
		(s.node == "" || o.node == s.node) && (s.label == "" || o.labels[s.label] == s.value)
}
