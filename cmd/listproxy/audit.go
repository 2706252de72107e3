package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/spf13/pflag"

	"github.com/listproxy/listproxy/proxy/audit"
	"github.com/listproxy/listproxy/proxy/authz"
	"github.com/listproxy/listproxy/proxy/upstream"
)

// auditEnd is how long the last events may take to be written.
const auditEnd = 5 * time.Second

// addAuditFlags are kube-apiserver's flags of the same names.
func addAuditFlags(fs *pflag.FlagSet, c *audit.Config) {
	fs.StringVar(&c.Path, "audit-log-path", c.Path,
		"`file` for an audit log of lists and watches answered from memory (audit.k8s.io/v1, JSON lines); - is standard output")
	fs.IntVar(&c.MaxSize, "audit-log-maxsize", c.MaxSize, "`megabytes` at which the audit log is rotated; 0 never")
	fs.IntVar(&c.MaxBackups, "audit-log-maxbackup", c.MaxBackups, "how many rotated files are kept; 0 all")
	fs.IntVar(&c.MaxAge, "audit-log-maxage", c.MaxAge, "`days` for which rotated files are kept; 0 for ever")
	fs.BoolVar(&c.Compress, "audit-log-compress", c.Compress, "compress rotated files")
}

// newWhoAmI returns what asks who callers are, or nil if nobody wants to know.
func (o *options) newWhoAmI(transports *upstream.Transports, observing *observing) (*authz.WhoAmI, error) {
	if !o.audit.Enabled() && !o.policy.NamesCallers() {
		return nil, nil //nolint:nilnil // none is no error
	}
	return authz.NewWhoAmI(observing.whoAmI(transports.SendAs), transports.URL(), authz.Config{TTL: o.reviewTTL})
}

// openAuditLog opens the audit log, or returns nil if there is to be none.
func openAuditLog(c audit.Config, log *slog.Logger) (*audit.Log, error) {
	if !c.Enabled() {
		return nil, nil //nolint:nilnil // none is no error
	}
	return audit.Open(c, log)
}

// closeAuditLog writes what is not written yet.
func closeAuditLog(events *audit.Log, log *slog.Logger) {
	if events == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), auditEnd)
	defer cancel()
	if err := events.Close(ctx); err != nil {
		log.Error("The audit log is not complete", "error", err)
	}
}
