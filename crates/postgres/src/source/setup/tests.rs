use super::*;

#[test]
fn a_log_that_the_server_itself_cannot_decode_is_a_lost_one_and_other_errors_are_not() {
    let judged = |sqlstate: &str, message: &str| {
        let told = tidewire_pgwire::PgError {
            severity: "ERROR".into(),
            sqlstate: sqlstate.into(),
            message: message.into(),
            hint: None,
            table: None,
            column: None,
            constraint: None,
        };
        judge(Error::unavailable(format!("PostgreSQL says {told}")).caused_by(told)).kind()
    };
    assert_eq!(judged("XX000", "could not map filenode \"base/1/2\" to relation OID"), ErrorKind::Lost);
    assert_eq!(judged("22021", "invalid byte sequence"), ErrorKind::Lost);
    assert_eq!(judged("XX000", "something else"), ErrorKind::Unavailable);
    assert_eq!(judged("57P01", "terminating connection"), ErrorKind::Unavailable);
}

#[test]
fn a_new_log_goes_on_above_the_old_one() {
    let last = Position::end_of(1000);
    for (lsn, base) in [(10, 0), (1000, 0), (1001, 0), (5000, 0), (10, 500), (600, 500)] {
        let above = base_above(&Begin::Lost(last, base), lsn);
        assert!(above >= base, "a base never shrinks");
        // The stream's first place is just below the slot's first position.
        assert!(Position::end_of(lsn + above - 1) > last, "{lsn} {base}");
    }
    assert_eq!(base_above(&Begin::Nothing, 10), 0);
}
