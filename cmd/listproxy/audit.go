package main

import (
	"github.com/spf13/pflag"

	"github.com/listproxy/listproxy/proxy/observe"
)

// auditOptions has the file of the audit log, and its rotation. The flags have the names and meanings of kube-apiserver's, but
// by default nothing is rotated.
type auditOptions struct {
	config observe.AuditConfig
}

// AddFlags implements optionGroup.
func (o *auditOptions) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.config.Path, "audit-log-path", "",
		"`file` for an audit log of lists and watches answered from memory (audit.k8s.io/v1, JSON lines); "+
			"- is standard output")
	fs.Uint32Var(&o.config.MaxSize, "audit-log-maxsize", 0, "`megabytes` at which the audit log is rotated; 0 never")
	fs.Uint32Var(&o.config.MaxBackups, "audit-log-maxbackup", 0, "`number` of rotated files that are kept; 0 all")
}

// Validate implements optionGroup. A wrong path is found when the file is opened.
func (o *auditOptions) Validate() error { return nil }
