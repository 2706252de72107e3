package cluster

import (
	"cmp"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/snapshot"
)

// storageVersionsPath is the path of the StorageVersions. In the StorageVersion of a resource, each API server notes the
// version in which it writes the resource. While these versions differ, lists and watches of the resource are forwarded. Equal
// versions do not prove equal bytes, since two releases can write the same version differently. An upstream has StorageVersions
// only with the feature gate StorageVersionAPI, which is off by default.
//
// A resource that is served in several groups has one StorageVersion, for one of the groups. In kube-apiserver 1.36 only Events
// are such a resource, and they are never kept in memory.
const storageVersionsPath = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions"

// coreGroup stands for the core group in the name of a StorageVersion. The name is group.resource
// (k8s.io/apiserver/pkg/storageversion), and a resource has no dots.
const coreGroup = "core"

// disagreement is true if the API servers write a resource in different versions.
type disagreement bool

// readStorageVersion returns true for a StorageVersion in which the versions of the API servers differ, or no version is noted.
func readStorageVersion(o *object) disagreement {
	differ := meta.IsStatusConditionFalse(o.Status.Conditions, "AllEncodingVersionsEqual")
	return disagreement(differ || o.Status.CommonEncodingVersion == "")
}

// storageVersionsDiffer reports whether the API servers are known to disagree on the version of a resource.
func (c *Cluster) storageVersionsDiffer(gr schema.GroupResource) bool {
	name := cmp.Or(gr.Group, coreGroup) + "." + gr.Resource
	return bool(c.storageVersions.get(name).value) // false if there is no StorageVersion
}

// storageVersionChanged logs when the API servers begin or cease to disagree on a resource's version. When they agree again,
// the resource is verified.
func (c *Cluster) storageVersionChanged(change valueChange[disagreement]) {
	differedBefore := change.before != nil && bool(*change.before)
	differNow := change.after != nil && bool(*change.after)
	if differNow == differedBefore {
		return
	}
	dot := strings.LastIndexByte(change.name, '.') // -1 if the name has no group, which kube-apiserver never makes
	gr := schema.GroupResource{Group: change.name[:max(0, dot)], Resource: change.name[dot+1:]}
	if gr.Group == coreGroup {
		gr.Group = ""
	}
	if differNow {
		c.config.Log.Info("the API servers write a resource in different versions: it is forwarded until they agree",
			"resource", gr.String())
		return
	}
	c.config.Log.Info("the API servers agree again in which version they write a resource", "resource", gr.String())
	c.config.Verify(snapshot.OfResource(gr))
}
