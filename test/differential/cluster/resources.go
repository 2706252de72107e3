package cluster

import (
	"fmt"
	"math/rand/v2"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/test/harness/kinds"
)

// Field is a field that a field selector may name, and the values that selectors require of it. A value that is listed twice is
// chosen twice as often.
type Field struct {
	Name   string
	Values []string
}

// NodeNameField is the field that selects the pods of a node.
const NodeNameField = "spec.nodeName"

// Two of the nodes that the churn writes, see Resource.Names.
const nodeA, nodeB = clusterPrefix + "a", clusterPrefix + "b"

// Resource is a resource that is compared.
type Resource struct {
	schema.GroupVersionResource
	Kind       string
	Namespaced bool
	// Cached means that listproxy keeps the resource in memory with the default policy.
	Cached bool
	// JSONOnly means that the server has no protobuf of the resource, not even of its metadata.
	JSONOnly bool
	// Fields are the selectable fields of the type.
	Fields []Field
	// ReadOnly marks a version whose objects are written in another version.
	ReadOnly bool

	// namesHaveDots means that names of objects may have dots.
	namesHaveDots bool
	// build returns a random new object.
	build func(*rand.Rand) object
	// patch returns a random patch.
	patch func(*rand.Rand) patch
}

// clusterPrefix is the prefix of the names of objects without a namespace. The churn spares other such objects.
const clusterPrefix = "churn-"

// kind returns the kind of the resource.
func (r Resource) kind() kinds.Kind {
	return kinds.Kind{APIVersion: r.GroupVersion().String(), Name: r.Kind, Plural: r.Resource}
}

// Path returns the path of a list in a namespace, or in all namespaces if namespace is "".
func (r Resource) Path(namespace string) string { return r.kind().Path(namespace) }

// Names returns the names of the objects. They are hard to put in order: some are prefixes of others, and some have characters
// before or behind '/' in the order of bytes. (A key of etcd has a '/' between namespace and name.)
func (r Resource) Names() []string {
	names := []string{"a", "a-0", "a-0-b", "a0", "aa", "aa-a", "b", "b-1", "b-10", "b-2", "z", "zz"}
	if r.namesHaveDots {
		names = append(names, "a.0", "a-0.b", "a.0-b", "b.1", "0", "0.0-a")
	}
	if !r.Namespaced {
		for i, name := range names {
			names[i] = clusterPrefix + name
		}
	}
	return names
}

// Group is the group of the custom resources.
const Group = "differential.listproxy.test"

// Resources returns everything that is compared.
func Resources() []Resource {
	core := func(name string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Version: "v1", Resource: name}
	}
	custom := func(version, name string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: Group, Version: version, Resource: name}
	}
	return []Resource{
		{
			GroupVersionResource: core("pods"), Kind: "Pod", Namespaced: true, Cached: true, namesHaveDots: true,
			Fields: []Field{
				{NodeNameField, []string{nodeA, nodeA, nodeB, "", "none"}},
				{NodeNameField, []string{nodeA, nodeB}}, // again, so that it is chosen more often: kubelets ask for it
				{"spec.restartPolicy", []string{"Always", "Never", ""}},
				{"spec.schedulerName", []string{"default-scheduler", "other"}},
				{"spec.serviceAccountName", []string{"robot", "", "none"}},
				{"spec.hostNetwork", []string{"true", "false", ""}},
				{"status.phase", []string{"Running", "Pending", "Failed", ""}},
				{"status.podIP", []string{"10.1.0.1", "10.1.0.2", "fd00::1", ""}},
				{"status.nominatedNodeName", []string{nodeA, "", "none"}},
			},
			build: buildPod, patch: patchPod,
		},
		{
			GroupVersionResource: core("configmaps"), Kind: "ConfigMap", Namespaced: true, Cached: true, namesHaveDots: true,
			build: buildConfigMap, patch: func(r *rand.Rand) patch { return patch{body: object{"data": trickyTexts(r)}} },
		},
		{
			GroupVersionResource: core("services"), Kind: "Service", Namespaced: true, Cached: true,
			Fields: []Field{{"spec.type", []string{"ClusterIP", "ExternalName", ""}}, {"spec.clusterIP", []string{"None", "", "10.0.0.1"}}},
			build:  buildService, patch: patchMetadata,
		},
		{
			GroupVersionResource: core("secrets"), Kind: "Secret", Namespaced: true, namesHaveDots: true,
			Fields: []Field{{"type", []string{"Opaque", "example.test/other", ""}}},
			build: func(r *rand.Rand) object {
				return object{"stringData": trickyTexts(r), "type": oneOf(r, "Opaque", "example.test/other")}
			},
			patch: patchMetadata,
		},
		{
			GroupVersionResource: core("nodes"), Kind: "Node", Cached: true, namesHaveDots: true,
			Fields: []Field{{"spec.unschedulable", []string{"true", "false", ""}}},
			build:  func(r *rand.Rand) object { return object{"spec": object{"unschedulable": r.IntN(2) == 0}} },
			patch: func(r *rand.Rand) patch {
				return patch{body: object{"spec": object{"unschedulable": oneOf(r, true, false, nil)}}}
			},
		},
		{
			GroupVersionResource: core("replicationcontrollers"), Kind: "ReplicationController", Namespaced: true, Cached: true, namesHaveDots: true,
			Fields: []Field{{"status.replicas", []string{"0", "1", "2", ""}}},
			build:  buildController,
			patch: func(r *rand.Rand) patch {
				return patch{body: object{"status": object{"replicas": r.IntN(3)}}, subresource: "status"}
			},
		},
		{
			GroupVersionResource: schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"},
			Kind:                 "Job", Namespaced: true, Cached: true, namesHaveDots: true,
			Fields: []Field{{"status.successful", []string{"0", "1", "2", ""}}},
			build:  buildJob,
			patch: func(r *rand.Rand) patch {
				return patch{body: object{"status": object{"succeeded": r.IntN(3)}}, subresource: "status"}
			},
		},
		{
			GroupVersionResource: core("namespaces"), Kind: "Namespace", Cached: true,
			Fields: []Field{{"status.phase", []string{"Active", "Terminating", ""}}},
			build:  func(*rand.Rand) object { return object{} }, patch: patchMetadata,
		},
		{
			GroupVersionResource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"},
			Kind:                 "Deployment", Namespaced: true, Cached: true, namesHaveDots: true,
			build: buildDeployment,
			patch: func(r *rand.Rand) patch { return patch{body: object{"spec": object{"replicas": r.IntN(100)}}} },
		},
		{
			GroupVersionResource: schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"},
			Kind:                 "Lease", Namespaced: true, Cached: true, namesHaveDots: true,
			build: func(r *rand.Rand) object { return object{"spec": object{"holderIdentity": trickyText(r)}} },
			patch: func(r *rand.Rand) patch {
				return patch{body: object{"spec": object{"renewTime": fmt.Sprintf("2026-01-02T03:04:05.%06dZ", r.IntN(1e6))}}}
			},
		},
		{
			GroupVersionResource: custom("v1", "gadgets"), Kind: "Gadget", Namespaced: true, Cached: true, namesHaveDots: true,
			Fields: customFields,
			build:  buildCustom, patch: func(r *rand.Rand) patch { return patch{body: buildCustom(r)} },
		},
		// The same objects in a deprecated version, whose lists carry a Warning.
		{
			GroupVersionResource: custom("v1beta1", "gadgets"), Kind: "Gadget", Namespaced: true, Cached: true, namesHaveDots: true,
			ReadOnly: true, Fields: customFields[:1],
		},
		{
			GroupVersionResource: custom("v1", "widgets"), Kind: "Widget", Cached: true, namesHaveDots: true,
			Fields: customFields,
			build:  buildCustom, patch: func(r *rand.Rand) patch { return patch{body: buildCustom(r)} },
		},
	}
}

// customFields are the selectable fields of the custom resources. The old version has the first only.
var customFields = []Field{
	{"spec.color", []string{"red", "blue", "", `a,b=c\`, "none"}},
	{"spec.size", []string{"0", "1", "9223372036854775807", "-1", "", "01"}},
	{"spec.on", []string{"true", "false", "", "True"}},
}
