"""The store on SQL: schema, statements by theme, one file of dialect branches, migrations. Contract: `ports.store`."""
