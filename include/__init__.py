"""Everything of Trainyard that is not Airflow: the plain Python floors and the local engine beside them."""
