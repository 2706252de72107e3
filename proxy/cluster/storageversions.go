package cluster

import (
	"cmp"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/snapshot"
)

// storageVersionsPath is the path of the StorageVersions, which an upstream has only with the feature gate StorageVersionAPI
// (off by default). In a StorageVersion each API server notes the version in which it writes a resource. While these
// versions differ, lists of the resource are forwarded. A resource without a StorageVersion is not affected. Equal versions
// do not prove equal bytes, since another release can write the same version in other bytes.
//
// Resources that are stored together under several groups have one StorageVersion, for one of the groups. In
// kube-apiserver 1.36 these are only Events, which are never kept.
const storageVersionsPath = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions"

// coreGroup stands for the core group in the name of a StorageVersion. The name is group.resource
// (k8s.io/apiserver/pkg/storageversion), and a resource has no dots.
const coreGroup = "core"

// storageVersionChanged logs when the API servers begin or cease to differ in a resource's version. When they agree again,
// the resource is verified.
func (c *Cluster) storageVersionChanged(diff change[bool]) {
	differed := diff.before != nil && !*diff.before
	differ := diff.after != nil && !*diff.after
	if differ == differed {
		return
	}
	dot := strings.LastIndexByte(diff.name, '.')
	gr := schema.GroupResource{Group: diff.name[:max(0, dot)], Resource: diff.name[dot+1:]}
	if gr.Group == coreGroup {
		gr.Group = ""
	}
	if differ {
		c.config.Log.Info("the API servers do not agree in which version they write a resource: it is forwarded until they do",
			"resource", gr.String())
		return
	}
	const agree = "the API servers agree again in which version they write a resource"
	c.config.Log.Info(agree, "resource", gr.String())
	c.config.Verify(snapshot.OfResource(gr), agree)
}

// storageVersionsDiffer reports whether the API servers are known to disagree on the version of a resource.
func (c *Cluster) storageVersionsDiffer(gr schema.GroupResource) bool {
	agreed, found, _ := c.storageVersionsAgree.get(cmp.Or(gr.Group, coreGroup) + "." + gr.Resource)
	return found && !agreed
}

// readStorageVersion reports whether the API servers agree on a version.
func readStorageVersion(o *object) (agreed bool) {
	return o.Status.CommonEncodingVersion != "" && o.conditionStatus("AllEncodingVersionsEqual") != "False"
}
